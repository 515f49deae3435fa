/*
 * The loops of posts.rs and prepared.rs that post through ibv_qp_ex, as a C program has them: a request is not kept, but told anew
 * for each post. And those of extended_polls.rs, that poll an ibv_cq_ex.
 */
#include <errno.h>
#include "loops.h"

#define LIST(QP, ADDR, LENGTH) ibv_wr_set_sge(QP, f->lkey, ADDR, LENGTH)
#define INLINE(QP, ADDR, LENGTH) ibv_wr_set_inline_data(QP, (void *)ADDR, LENGTH)

#define POSTS(NAME, FLAGS, BUILD, SET, LENGTH)                                    \
	uint64_t c_wr_##NAME(const struct fixture *f, uint64_t count)             \
	{                                                                         \
		struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(f->extended);              \
		for (uint64_t i = 0; i < count; i++) {                            \
			ibv_wr_start(qp);                                         \
			qp->wr_id = i;                                            \
			qp->wr_flags = FLAGS;                                     \
			BUILD;                                                    \
			SET(qp, part(f, i), LENGTH);                              \
			if (ibv_wr_complete(qp))                                  \
				return 0;                                         \
		}                                                                 \
		return count;                                                     \
	}                                                                         \
                                                                                  \
	uint64_t c_wr_##NAME##_chain(const struct fixture *f, uint64_t count)     \
	{                                                                         \
		struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(f->extended);              \
		for (uint64_t i = 0; i < count; i++) {                            \
			ibv_wr_start(qp);                                         \
			for (uint64_t k = 0; k < CHAIN; k++) {                    \
				qp->wr_id = i + k;                                \
				qp->wr_flags = FLAGS;                             \
				BUILD;                                            \
				SET(qp, part(f, k), LENGTH);                      \
			}                                                         \
			if (ibv_wr_complete(qp))                                  \
				return 0;                                         \
		}                                                                 \
		return count;                                                     \
	}

#define WRITE ibv_wr_rdma_write(qp, f->rkey, f->remote_addr)

POSTS(send, IBV_SEND_SIGNALED, ibv_wr_send(qp), LIST, PART)
POSTS(inline_send, IBV_SEND_SIGNALED | IBV_SEND_INLINE, ibv_wr_send(qp), INLINE, PART)
POSTS(write, IBV_SEND_SIGNALED, WRITE, LIST, PART)
POSTS(inline_write, IBV_SEND_SIGNALED | IBV_SEND_INLINE, WRITE, INLINE, PART)
POSTS(read, IBV_SEND_SIGNALED, ibv_wr_rdma_read(qp, f->rkey, f->remote_addr), LIST, PART)
POSTS(atomic, IBV_SEND_SIGNALED, ibv_wr_atomic_cmp_swp(qp, f->rkey, f->remote_addr, 0, 1), LIST, WORD)

uint64_t c_wr_write_polled(const struct fixture *f, uint64_t count)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(f->extended);
	struct ibv_cq_ex *cq = f->extended_cq;
	struct ibv_poll_cq_attr none = {};
	uint64_t done = 0;
	for (uint64_t i = 0; i < count; i++) {
		ibv_wr_start(qp);
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		WRITE;
		ibv_wr_set_sge(qp, f->lkey, part(f, i), PART);
		if (ibv_wr_complete(qp))
			return 0;
		/* One entry: a second one would be looked for by ibv_next_poll, for 9 instructions more. */
		int code = ibv_start_poll(cq, &none);
		if (code == ENOENT)
			continue;
		if (code || cq->status != IBV_WC_SUCCESS)
			return 0;
		ibv_wc_read_byte_len(cq);
		done++;
		ibv_end_poll(cq);
	}
	return done;
}

/* A queue that is always full: the identifiers and the lengths are looked at. */
#define POLL_FULL(NAME, N)                                                                                \
	uint64_t NAME(const struct fixture *f, uint64_t count)                                            \
	{                                                                                                 \
		struct ibv_poll_cq_attr none = {};                                                        \
		uint64_t done = 0, sum = 0;                                                               \
		for (uint64_t i = 0; i < count; i++) {                                                    \
			if (ibv_start_poll(f->extended_cq, &none))                                        \
				return 0;                                                                 \
			for (int k = 0;;) {                                                               \
				if (f->extended_cq->status != IBV_WC_SUCCESS)                             \
					return 0;                                                         \
				sum += f->extended_cq->wr_id + ibv_wc_read_byte_len(f->extended_cq);      \
				done++;                                                                   \
				if (++k == N || ibv_next_poll(f->extended_cq))                            \
					break;                                                            \
			}                                                                                 \
			ibv_end_poll(f->extended_cq);                                                     \
		}                                                                                         \
		return sum == 0 ? done : 0;                                                               \
	}

POLL_FULL(c_extended_poll_1, 1)
POLL_FULL(c_extended_poll_16, 16)
POLL_FULL(c_extended_poll_64, 64)

uint64_t c_extended_poll_empty(const struct fixture *f, uint64_t count)
{
	struct ibv_poll_cq_attr none = {};
	uint64_t done = 0;
	for (uint64_t i = 0; i < count; i++) {
		if (ibv_start_poll(f->extended_cq, &none) != ENOENT)
			return 0;
		done++;
	}
	return done;
}
