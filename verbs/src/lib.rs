//! Safe RDMA verbs: devices, memory, queue pairs and completions over libibverbs.
//!
//! ```text
//! DeviceList ── Device ── Context ─┬─ ProtectionDomain ─┬─ MemoryRegion<M> ── LocalSlice, RemoteSlice
//!                                  │   (parent, XRC)    ├─ MemoryWindow<1|2> ── BindRequest, UnbindRequest
//!                                  │                    ├─ SharedReceiveQueue ── ReceiveRequest
//!                                  │                    ├─ AddressHandle ───────────╮
//!                                  │                    └─ QueuePair<Rc|Uc|Ud> ── SendRequest, ReceiveRequest
//!                                  │                              │
//!                                  ├─ CompletionChannel           │
//!                                  │        └──────┐              │
//!                                  ├─ CompletionQueue, ExtendedCompletionQueue<F>
//!                                  │        └─ WorkCompletion, ExtendedCompletion<F>
//!                                  ├─ ThreadDomain, DeviceMemory, Counters, EspAction
//!                                  └─ AsyncEvent
//! ```
//!
//! # A program
//!
//! Two queue pairs of one device, connected to each other; a real program sends its [`Endpoint`] to another host instead.
//!
//! ```no_run
//! use verbs::{AccessFlags, ConnectOptions, GidFilter, QueuePair, Rc, ReceiveRequest, SendRequest, WorkCompletion};
//!
//! fn main() -> verbs::Result<()> {
//!     let context = verbs::devices()?.find(None)?.open()?;
//!     let pd = context.create_protection_domain()?;
//!     let cq = context.create_completion_queue(16)?;
//!     let mut region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE)?;
//!
//!     let sender = QueuePair::<Rc>::builder(&pd, &cq, &cq).build()?;
//!     let receiver = QueuePair::<Rc>::builder(&pd, &cq, &cq).build()?;
//!     let from = sender.local_endpoint(1, &GidFilter::default())?;
//!     let to = receiver.local_endpoint(1, &GidFilter::default())?;
//!     sender.connect(&from, &to.endpoint, &ConnectOptions::default())?;
//!     receiver.connect(&to, &from.endpoint, &ConnectOptions::default())?;
//!
//!     region.write_at(0, b"Hello, RDMA!")?;
//!     receiver.post_receive(&ReceiveRequest::new(1, &[region.slice(2048..)?]))?;
//!     sender.post_send(&SendRequest::send(2, &[region.slice(..12)?]).signaled())?;
//!
//!     let mut completions = [WorkCompletion::default(); 2];
//!     let mut outstanding = 2;
//!     while outstanding > 0 {
//!         for completion in cq.poll(&mut completions)? {
//!             let done = completion.success()?;
//!             println!("request {}: {}, {:?} bytes", done.wr_id(), done.opcode(), done.byte_len());
//!             outstanding -= 1;
//!         }
//!     }
//!     println!("{}", String::from_utf8_lossy(&region.to_vec(2048..2060)?));
//!     Ok(())
//! }
//! ```
//!
//! # Transports
//!
//! [`Rc`], as above, is reliable and has all operations. [`Uc`] is connected too and has SEND and RDMA WRITE, but loses a message where the
//! wire does, and nobody is told: who waits for one needs a deadline. RDMA READ and atomics do not compile.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use verbs::{
//!     AccessFlags, CompletionQueueBuilder, ConnectOptions, GidFilter, QueuePair, ReceiveRequest, SendRequest, Uc, WorkCompletion,
//! };
//!
//! fn main() -> verbs::Result<()> {
//!     let context = verbs::devices()?.find(None)?.open()?;
//!     let pd = context.create_protection_domain()?;
//!     let channel = context.create_completion_channel()?;
//!     let (sends, arrivals) =
//!         (context.create_completion_queue(16)?, CompletionQueueBuilder::new(&context, 16).channel(&channel).build()?);
//!     let mut region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
//!
//!     let sender = QueuePair::<Uc>::builder(&pd, &sends, &sends).build()?;
//!     let receiver = QueuePair::<Uc>::builder(&pd, &arrivals, &arrivals).build()?;
//!     let from = sender.local_endpoint(1, &GidFilter::default())?;
//!     let to = receiver.local_endpoint(1, &GidFilter::default())?;
//!     sender.connect(&from, &to.endpoint, &ConnectOptions::default())?;
//!     receiver.connect(&to, &from.endpoint, &ConnectOptions::default())?;
//!
//!     // A write whose arrival is told: the immediate data takes a receive, though it needs no room.
//!     region.write_at(0, b"Hello, if you get this")?;
//!     receiver.post_receive(&ReceiveRequest::new(1, &[]))?;
//!     let target = region.remote_slice(2048..)?;
//!     sender.post_send(&SendRequest::rdma_write_with_imm(2, &[region.slice(..22)?], target, 22).signaled())?;
//!
//!     let mut completions = [WorkCompletion::default(); 1];
//!     match arrivals.wait(&mut completions, Some(Duration::from_secs(1)))? {
//!         [] => println!("it got lost"),
//!         [completion, ..] => {
//!             let length = completion.success()?.imm_data().unwrap_or(0) as usize;
//!             println!("{}", String::from_utf8_lossy(&region.to_vec(2048..2048 + length)?));
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! With [`Ud`], a queue pair talks to any other: a datagram takes an address handle, a queue pair number and a Q_Key, and what arrives begins
//! with a header of 40 bytes.
//!
//! ```no_run
//! use verbs::{AccessFlags, GidFilter, QueuePair, ReceiveRequest, SendRequest, Ud, WorkCompletion};
//!
//! fn main() -> verbs::Result<()> {
//!     const QKEY: u32 = 0x1111_1111;
//!     let context = verbs::devices()?.find(None)?.open()?;
//!     let pd = context.create_protection_domain()?;
//!     let (sends, receives) = (context.create_completion_queue(16)?, context.create_completion_queue(16)?);
//!     let mut region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE)?;
//!
//!     let sender = QueuePair::<Ud>::builder(&pd, &sends, &sends).build()?;
//!     let receiver = QueuePair::<Ud>::builder(&pd, &receives, &receives).build()?;
//!     let from = sender.local_endpoint(1, &GidFilter::default())?;
//!     let to = receiver.local_endpoint(1, &GidFilter::default())?;
//!     sender.activate(&from, QKEY)?;
//!     receiver.activate(&to, QKEY)?;
//!
//!     region.write_at(0, b"Hello, whoever is there!")?;
//!     receiver.post_receive(&ReceiveRequest::new(1, &[region.slice(1024..2048)?]))?;
//!     let ah = pd.create_address_handle_to(&from, &to.endpoint)?;
//!     let slices = [region.slice(..24)?];
//!     sender.post_send(&SendRequest::send_to(2, &slices, &ah, receiver.qp_num(), QKEY).signaled())?;
//!
//!     let mut completions = [WorkCompletion::default(); 1];
//!     loop {
//!         for completion in receives.poll(&mut completions)? {
//!             let done = completion.success()?;
//!             let Some(datagram) = done.datagram() else { continue };
//!             let text = region.to_vec(datagram.payload_at(1024))?;
//!             println!("queue pair {:#x} says: {}", datagram.source_qp_num(), String::from_utf8_lossy(&text));
//!             return Ok(());
//!         }
//!     }
//! }
//! ```
//!
//! # Ownership
//!
//! An object holds the objects that it was made from, so handles can be dropped in any order and put into any structure:
//! the C objects are destroyed in the order that libibverbs asks for. [`Context`], [`ProtectionDomain`],
//! [`CompletionQueue`], [`CompletionChannel`], [`SharedReceiveQueue`] and [`AddressHandle`] are handles that can be cloned.
//!
//! # Memory
//!
//! Registered memory is shared memory: a device, and through it a peer, may read and write it at any time. A
//! [`MemoryRegion`] owns its buffer and hands out copies, not slices; a region of atomics can be shared as atomics. That is
//! why posting is safe and needs no bookkeeping: whatever arrives whenever breaks no promise of Rust's.
//!
//! | what is registered | by |
//! |---|---|
//! | boxed slices, vectors, `'static` slices, slices of atomics (boxed or in an [`Arc`](std::sync::Arc)) | [`ProtectionDomain::register`] |
//! | memory in pages of its own, or in huge pages | the same, of a [`Mapping`] |
//! | a range that the program answers for | the same, of a [`RawBuffer`] |
//! | any of these, at addresses that the program chooses | [`ProtectionDomain::register_with_iova`] |
//! | memory that is registered, once more | [`MemoryRegion::register_again`] |
//! | memory of another device | [`ProtectionDomain::register_dma_buf`] |
//! | memory on the device | [`DeviceMemory`] |
//! | memory that another process registered | [`ProtectionDomain::import_memory_region`] |
//! | nothing at all, or everything | [`NullMemory`], [`AddressSpace`] |
//! | part of a region, for a while, for a peer | a [`MemoryWindow`] |
//!
//! # Ways to post
//!
//! All of them take no lock of their own, allocate nothing and ring one doorbell a call. `cargo bench -p verbs --bench instructions` has
//! the figures.
//!
//! | what is posted | by |
//! |---|---|
//! | a request | a [`SendRequest`], built where it is posted; [`ReceiveRequest`] |
//! | bytes of the program's own, copied while posting | [`SendRequest::send_inline`] and the like |
//! | the same request again, with other values | [`PreparedSend`], [`PreparedAtomic`], [`PreparedReceive`] |
//! | several requests | an array or vector of those: [`post_send_chain`](QueuePair::post_send_chain) |
//! | as many as there happen to be | a [`SendBatch`] |
//! | many sends, few completions | through a [`SelectiveSignaling`], which knows the free slots |
//! | receives of one size, again and again | [`ReceiveSlots`] |
//! | through `ibv_wr_start` | [`QueuePair::extended`]; completions with more fields: [`ExtendedCompletionQueue`] |
//! | an atomic write, a flush | [`QueuePair::extended`] only, where the queue pair was made with it: [`AtomicWriteRequest`], `FlushRequest` |
//!
//! # Threads
//!
//! Every type is [`Send`]: objects can be made in one thread and dropped in another. Objects are [`Sync`], too, since libibverbs takes its own
//! locks: threads may post to one queue pair, poll one completion queue and wait on one channel at once. (It takes none in a
//! [`ThreadDomain`], which is why it is `unsafe` to make objects in one.) What is written to while it is posted is not `Sync`, and each
//! thread has its own: requests, prepared ones included, [`SendBatch`] and what is in it, [`ReceiveSlots`].
//!
//! An event loop serves many queues in one thread: [`CompletionQueue::poll_or_arm`].
//!
//! # The way down
//!
//! What this crate does not wrap is in [`ffi`], and every object shows its pointer by `as_raw`. What C made, of any kind, is taken over by
//! `from_raw`; what another library made and will destroy itself, as `librdmacm` does, is held by `lent`: [`Context::lent`],
//! [`ProtectionDomain::lent`], [`CompletionQueue::lent`], [`SharedReceiveQueue::lent`], [`QueuePair::lent`]. What another process has
//! open is imported: [`Context::import`].
//!
//! # Features
//!
//! * `serde`: [`Endpoint`], [`Gid`] and [`RemoteSlice`] are serialized, as the text that they print.
//!
//! # Errors
//!
//! An [`Error`] names the verb, what was asked of it, the system's error number and the remedy where one is known.
#![deny(unsafe_code)]

mod access_flags;
mod address_handle;
mod address_handle_attributes;
mod advice;
mod async_event;
mod buffer;
mod chain;
mod completion_channel;
mod completion_error;
mod completion_fields;
mod completion_queue;
mod context;
mod counters;
mod datagram;
mod device;
mod device_attributes;
mod device_capabilities;
mod device_memory;
mod dispatch;
mod endpoint;
mod error;
mod esp_action;
mod extended_completion_queue;
mod extended_device_attributes;
mod flags;
mod flow;
mod fork;
mod gid;
mod gid_table;
mod grh;
mod held_slice;
mod huge_pages;
mod indirection_table;
mod inline_slice;
mod leaked;
mod lender;
mod link_rate;
mod local_slice;
mod local_slice_mut;
mod mapping;
mod memory_region;
mod memory_window;
mod object_id;
mod open_enum;
mod opened;
mod parent_domain;
mod partition_key;
mod poll_error;
mod port;
mod port_link;
mod post_error;
mod prepared_atomic;
mod prepared_receive;
mod prepared_send;
mod protection_domain;
mod queue_pair;
mod range;
mod rate_limit;
mod raw_buffer;
mod raw_bytes;
mod raw_context;
mod raw_packet_capabilities;
mod raw_packet_queue_pair;
mod readable;
mod receive_queue;
mod receive_request;
mod receive_slots;
mod remote_slice;
mod returns;
mod route;
mod selective_signaling;
#[cfg(test)]
mod send_and_sync;
mod send_batch;
mod send_request;
#[cfg(feature = "serde")]
mod serialize;
mod shared_receive_queue;
mod thread_domain;
mod timers;
mod transport;
mod watch;
mod work_completion;
mod work_queue;
mod work_request;
mod xrc_domain;
mod xrc_queue_pair;

/// The raw bindings, for what this crate does not wrap.
pub use ibverbs_sys as ffi;

pub use access_flags::AccessFlags;
pub use address_handle::AddressHandle;
pub use address_handle_attributes::{AddressHandleAttributes, GlobalRoute};
pub use advice::Advice;
pub use async_event::{AsyncEvent, AsyncEventObject, AsyncEventSource, AsyncEventType};
pub use buffer::{Atomic, Buffer, BufferMut};
pub use chain::{PreparedRequest, ReceiveChain, SendChain};
pub use completion_channel::CompletionChannel;
pub use completion_error::CompletionError;
pub use completion_fields::{CompletionField, CompletionFields, completion_field};
pub use completion_queue::{CompletionQueue, CompletionQueueBuilder, Notify};
pub use context::Context;
pub use counters::{CounterDescription, Counters};
pub use datagram::Datagram;
pub use device::{Device, DeviceList, NodeType, TransportType, devices};
pub use device_attributes::DeviceAttributes;
pub use device_capabilities::{AtomicCapability, DeviceCapabilities};
pub use device_memory::{DeviceMemory, DeviceMemoryRange};
pub use endpoint::{Endpoint, LocalEndpoint};
pub use error::{Error, Result};
pub use esp_action::{EspAction, EspAttributes, EspFlags};
pub use extended_completion_queue::{ExtendedCompletion, ExtendedCompletionQueue};
pub use extended_device_attributes::{
    ExtendedDeviceAttributes, ModerationLimits, OnDemandOperations, OnDemandPaging, PacketPacing, PciAtomics,
};
pub use flow::{EthernetMatch, Flow, FlowRule, Ipv4Match, Ipv6Match, PortMatch};
pub use fork::{ForkStatus, fork_status, prepare_for_fork};
pub use gid::{Gid, Guid};
pub use gid_table::{GidEntry, GidFilter, GidType};
pub use grh::{Grh, GrhFormat};
pub use held_slice::HeldSlice;
pub use huge_pages::HugePageSize;
pub use indirection_table::IndirectionTable;
pub use inline_slice::InlineSlice;
pub use leaked::leaked_bytes;
pub use link_rate::LinkRate;
pub use local_slice::LocalSlice;
pub use local_slice_mut::LocalSliceMut;
pub use mapping::Mapping;
pub use memory_region::{
    AddressSpace, DmaBuf, ImportedMemory, Memory, MemoryRegion, NullMemory, RegisterError, ReregisterError,
    Reregistration, SameMemory,
};
pub use memory_window::{BindRequest, Completion, MemoryWindow, UnbindRequest, WindowType, WindowType1, WindowType2};
pub use object_id::ObjectId;
pub use partition_key::PartitionKey;
pub use poll_error::PollError;
pub use port::{LinkLayer, Mtu, PortAttributes, PortState};
pub use port_link::{LinkSpeed, LinkWidth, PhysicalState, PortCapabilities};
pub use post_error::{PostError, PostErrorKind};
pub use prepared_atomic::PreparedAtomic;
pub use prepared_receive::PreparedReceive;
pub use prepared_send::PreparedSend;
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{
    AlternatePath, AtomicWriteRequest, ConnectOptions, DataOrder, EnhancedConnection, ExtendedSend, MULTICAST_QPN,
    MulticastAttachment, OrderedOperation, PathMigrationState, QueuePair, QueuePairAttributes, QueuePairBuilder,
    QueuePairCapabilities, QueuePairCreationFlags, QueuePairModification, QueuePairState,
};
#[cfg(rdma_core_45)]
pub use queue_pair::{FlushRequest, PlacementType, SelectivityLevel};
pub use rate_limit::RateLimit;
pub use raw_buffer::RawBuffer;
pub use raw_packet_capabilities::{
    QueuePairTypes, RawPacketCapabilities, ReceiveHashFields, ReceiveHashFunctions, ReceiveSideScaling,
    SegmentationOffload, TagMatching, TagMatchingCapabilities,
};
pub use raw_packet_queue_pair::{RawPacketQueuePair, ReceiveHash};
pub use receive_queue::ReceiveQueue;
pub use receive_request::ReceiveRequest;
pub use receive_slots::ReceiveSlots;
pub use remote_slice::RemoteSlice;
pub use selective_signaling::SelectiveSignaling;
pub use send_batch::{BatchedSends, SendBatch};
pub use send_request::SendRequest;
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueAttributes, SharedReceiveQueueBuilder};
pub use thread_domain::ThreadDomain;
pub use timers::{AckTimeout, RnrTimer};
pub use transport::{Connected, Rc, Transport, Uc, Ud};
pub use work_completion::{Success, WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
pub use work_queue::{WorkQueue, WorkQueueBuilder, WorkQueueFlags, WorkQueueState};
pub use xrc_domain::XrcDomain;
pub use xrc_queue_pair::{XrcReceiveQueuePair, XrcSendQueuePair};
