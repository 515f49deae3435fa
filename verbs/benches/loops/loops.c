/*
 * The loops of ours.rs as a C program has them: libibverbs' inline functions, requests on the stack, every field that is not
 * named zeroed by the language, every return value and status looked at.
 */
#include "loops.h"

POST_AND_POLL(c_send, qp, IBV_WR_SEND, )
POST_AND_POLL(c_write, qp, IBV_WR_RDMA_WRITE, REMOTE)
POST_AND_POLL(c_write_with_imm, qp, IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htobe32(i), REMOTE)
POST_AND_POLL(c_read, qp, IBV_WR_RDMA_READ, REMOTE)
POST_AND_POLL_OF(WORD, c_fetch_and_add, qp, IBV_WR_ATOMIC_FETCH_AND_ADD,
		 .wr.atomic = { .remote_addr = f->remote_addr, .compare_add = i, .rkey = f->rkey })

uint64_t c_send_inline(const struct fixture *f, uint64_t count)
{
	struct ibv_wc wc[ROOM];
	uint64_t done = 0;
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = part(f, i), .length = PART };
		struct ibv_send_wr wr = {
			.wr_id = i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		};
		struct ibv_send_wr *bad;
		if (ibv_post_send(f->qp, &wr, &bad))
			return 0;
		int n = poll_some(f->cq, wc);
		if (n < 0)
			return 0;
		done += n;
	}
	return done;
}

/* Every 16th request is signaled; its completion frees the slots of those before it. */
uint64_t c_selective(const struct fixture *f, uint64_t count)
{
	struct ibv_wc wc[ROOM];
	uint64_t done = 0, outstanding = 0;
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = part(f, i), .length = PART, .lkey = f->lkey };
		struct ibv_send_wr wr = {
			.wr_id = i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = i % CHAIN == CHAIN - 1 ? IBV_SEND_SIGNALED : 0,
			REMOTE
		};
		struct ibv_send_wr *bad;
		if (ibv_post_send(f->qp, &wr, &bad))
			return 0;
		if (++outstanding < CHAIN)
			continue;
		int n = poll_some(f->cq, wc);
		if (n < 0)
			return 0;
		outstanding -= n * CHAIN;
		done += n * CHAIN;
	}
	return done;
}

uint64_t c_chain(const struct fixture *f, uint64_t count)
{
	struct ibv_wc wc[ROOM];
	uint64_t done = 0;
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge[CHAIN];
		struct ibv_send_wr wr[CHAIN];
		struct ibv_send_wr *bad;
		for (uint64_t k = 0; k < CHAIN; k++) {
			sge[k] = (struct ibv_sge){ .addr = part(f, k), .length = PART, .lkey = f->lkey };
			wr[k] = (struct ibv_send_wr){
				.wr_id = i + k,
				.next = k + 1 < CHAIN ? &wr[k + 1] : NULL,
				.sg_list = &sge[k],
				.num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
				.send_flags = IBV_SEND_SIGNALED,
				REMOTE
			};
		}
		if (ibv_post_send(f->qp, wr, &bad))
			return 0;
		int n = poll_some(f->cq, wc);
		if (n < 0)
			return 0;
		done += n;
	}
	return done;
}

uint64_t c_receive(const struct fixture *f, uint64_t count)
{
	struct ibv_wc wc[ROOM];
	uint64_t done = 0;
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = part(f, i), .length = PART, .lkey = f->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
		struct ibv_recv_wr *bad;
		if (ibv_post_recv(f->qp, &wr, &bad))
			return 0;
		int n = poll_some(f->cq, wc);
		if (n < 0)
			return 0;
		done += n;
	}
	return done;
}

/* A queue that is always full: the identifiers are looked at. */
#define POLL_FULL(NAME, N)                                                                        \
	uint64_t NAME(const struct fixture *f, uint64_t count)                                    \
	{                                                                                         \
		struct ibv_wc wc[N];                                                              \
		uint64_t done = 0, sum = 0;                                                       \
		for (uint64_t i = 0; i < count; i++) {                                            \
			int n = ibv_poll_cq(f->cq, N, wc);                                        \
			if (n < 0)                                                                \
				return 0;                                                         \
			for (int k = 0; k < n; k++) {                                             \
				if (wc[k].status != IBV_WC_SUCCESS)                               \
					return 0;                                                 \
				sum += wc[k].wr_id;                                               \
			}                                                                         \
			done += n;                                                                \
		}                                                                                 \
		return sum == 0 ? done : 0;                                                       \
	}

POLL_FULL(c_poll_1, 1)
POLL_FULL(c_poll_16, 16)
POLL_FULL(c_poll_64, 64)

uint64_t c_poll_empty(const struct fixture *f, uint64_t count)
{
	struct ibv_wc wc[ROOM];
	uint64_t done = 0;
	for (uint64_t i = 0; i < count; i++) {
		int n = ibv_poll_cq(f->cq, ROOM, wc);
		if (n < 0)
			return 0;
		done += 1 + n;
	}
	return done;
}

/* Receives that are built once; those that have completed go to a list and are posted again with one doorbell. */
uint64_t c_receive_slots(const struct fixture *f, uint64_t count)
{
	struct ibv_wc wc[ROOM];
	struct ibv_sge sge[CHAIN];
	struct ibv_recv_wr wr[CHAIN];
	int free[CHAIN], free_count = CHAIN;
	uint64_t done = 0;
	for (int k = 0; k < CHAIN; k++) {
		sge[k] = (struct ibv_sge){ .addr = part(f, k), .length = PART, .lkey = f->lkey };
		wr[k] = (struct ibv_recv_wr){ .wr_id = k, .sg_list = &sge[k], .num_sge = 1 };
		free[k] = k;
	}
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_recv_wr *bad;
		for (int k = 0; k < free_count; k++)
			wr[free[k]].next = k + 1 < free_count ? &wr[free[k + 1]] : NULL;
		if (ibv_post_recv(f->qp, &wr[free[0]], &bad))
			return 0;
		free_count = 0;
		int n = ibv_poll_cq(f->cq, ROOM, wc);
		if (n < 0)
			return 0;
		for (int k = 0; k < n; k++) {
			if (wc[k].status != IBV_WC_SUCCESS || wc[k].byte_len > PART)
				return 0;
			free[free_count++] = wc[k].wr_id;
			done++;
		}
	}
	return done;
}

/* Reused: built once; for each post only the identifier and the address change. */
uint64_t c_reused(const struct fixture *f, uint64_t count)
{
	struct ibv_wc wc[ROOM];
	uint64_t done = 0;
	struct ibv_sge sge = { .length = PART, .lkey = f->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, REMOTE
	};
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_send_wr *bad;
		wr.wr_id = i;
		sge.addr = part(f, i);
		if (ibv_post_send(f->qp, &wr, &bad))
			return 0;
		int n = poll_some(f->cq, wc);
		if (n < 0)
			return 0;
		done += n;
	}
	return done;
}
