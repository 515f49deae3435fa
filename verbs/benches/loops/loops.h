/*
 * What the loops are given, and what they share.
 */
#ifndef LOOPS_H
#define LOOPS_H

#include <stdint.h>
#include <infiniband/verbs.h>

#define ROOM 16
#define CHAIN 16
#define PART 64
#define PARTS 64
#define WORD 8

struct fixture {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_qp *extended;
	struct ibv_cq_ex *extended_cq;
	struct ibv_qp *unreliable;
	struct ibv_qp *datagram;
	struct ibv_ah *ah;
	struct ibv_srq *srq;
	char *buffer;
	uint64_t remote_addr;
	uint32_t lkey;
	uint32_t rkey;
};

static inline uint64_t part(const struct fixture *f, uint64_t i)
{
	return (uintptr_t)(f->buffer + i % PARTS * PART);
}

/* How many requests have completed, or -1. */
static inline int poll_some(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq, ROOM, wc);
	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			return -1;
	return n;
}

#define REMOTE .wr.rdma = { .remote_addr = f->remote_addr, .rkey = f->rkey }
#define ATOMIC .wr.atomic = { .remote_addr = f->remote_addr, .rkey = f->rkey, .compare_add = 0, .swap = 1 }

/* Fresh: a request is built, posted and polled. OPERATION sets what the request has besides its list. */
#define POST_AND_POLL(NAME, QP, OPCODE, ...) POST_AND_POLL_OF(PART, NAME, QP, OPCODE, __VA_ARGS__)
#define POST_AND_POLL_OF(LENGTH, NAME, QP, OPCODE, ...)                                                   \
	uint64_t NAME(const struct fixture *f, uint64_t count)                                            \
	{                                                                                                 \
		struct ibv_wc wc[ROOM];                                                                   \
		uint64_t done = 0;                                                                        \
		for (uint64_t i = 0; i < count; i++) {                                                    \
			struct ibv_sge sge = { .addr = part(f, i), .length = LENGTH, .lkey = f->lkey };   \
			struct ibv_send_wr wr = {                                                         \
				.wr_id = i,                                                               \
				.sg_list = &sge,                                                          \
				.num_sge = 1,                                                             \
				.opcode = OPCODE,                                                         \
				.send_flags = IBV_SEND_SIGNALED,                                          \
				__VA_ARGS__                                                               \
			};                                                                                \
			struct ibv_send_wr *bad;                                                          \
			if (ibv_post_send(f->QP, &wr, &bad))                                              \
				return 0;                                                                 \
			int n = poll_some(f->cq, wc);                                                     \
			if (n < 0)                                                                        \
				return 0;                                                                 \
			done += n;                                                                        \
		}                                                                                         \
		return done;                                                                              \
	}

#endif
