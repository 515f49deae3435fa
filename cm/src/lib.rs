//! RDMA connection management.
