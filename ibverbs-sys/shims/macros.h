/* The shims of the functions that verbs.h hides behind macros of the same name. */
#include "headers.h"

int ibv_query_port__ibverbs_sys(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr);
struct ibv_mr *ibv_reg_mr__ibverbs_sys(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_mr_iova__ibverbs_sys(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
