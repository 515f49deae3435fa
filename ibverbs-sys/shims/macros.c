/*
 * verbs.h hides three exported functions behind macros of the same name. A C program calls the macro, so each function here is what
 * the macro does, called by the name that the macro hides.
 */
#include "macros.h"

int ibv_query_port__ibverbs_sys(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr)
{
	return ibv_query_port(context, port_num, port_attr);
}

/* `access` is no constant here, so the macro takes ibv_reg_mr_iova2, which knows the optional access flags. */
struct ibv_mr *ibv_reg_mr__ibverbs_sys(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova__ibverbs_sys(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova(pd, addr, length, iova, access);
}
