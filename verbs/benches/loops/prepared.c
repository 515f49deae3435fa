/*
 * The loops of prepared.rs as a C program has them: posts of requests that are built, and linked, before the loop. For each post the
 * identifiers and the addresses change.
 */
#include "loops.h"

#define PREPARED(NAME, OPCODE, LENGTH, ...)                                                                               \
	uint64_t c_prepared_##NAME(const struct fixture *f, uint64_t count)                                               \
	{                                                                                                                 \
		struct ibv_sge sge = { .length = LENGTH, .lkey = f->lkey };                                               \
		struct ibv_send_wr wr = {                                                                                 \
			.sg_list = &sge, .num_sge = 1, .opcode = OPCODE, .send_flags = IBV_SEND_SIGNALED, __VA_ARGS__     \
		};                                                                                                        \
		for (uint64_t i = 0; i < count; i++) {                                                                    \
			struct ibv_send_wr *bad;                                                                          \
			wr.wr_id = i;                                                                                     \
			sge.addr = part(f, i);                                                                            \
			if (ibv_post_send(f->qp, &wr, &bad))                                                              \
				return 0;                                                                                 \
		}                                                                                                         \
		return count;                                                                                             \
	}                                                                                                                 \
                                                                                                                          \
	uint64_t c_prepared_##NAME##_chain(const struct fixture *f, uint64_t count)                                       \
	{                                                                                                                 \
		struct ibv_sge sge[CHAIN];                                                                                \
		struct ibv_send_wr wr[CHAIN];                                                                             \
		for (uint64_t k = 0; k < CHAIN; k++) {                                                                    \
			sge[k] = (struct ibv_sge){ .length = LENGTH, .lkey = f->lkey };                                   \
			wr[k] = (struct ibv_send_wr){                                                                     \
				.next = k + 1 < CHAIN ? &wr[k + 1] : NULL,                                                \
				.sg_list = &sge[k],                                                                       \
				.num_sge = 1,                                                                             \
				.opcode = OPCODE,                                                                         \
				.send_flags = IBV_SEND_SIGNALED,                                                          \
				__VA_ARGS__                                                                               \
			};                                                                                                \
		}                                                                                                         \
		for (uint64_t i = 0; i < count; i++) {                                                                    \
			struct ibv_send_wr *bad;                                                                          \
			for (uint64_t k = 0; k < CHAIN; k++) {                                                            \
				wr[k].wr_id = i + k;                                                                      \
				sge[k].addr = part(f, i + k);                                                             \
			}                                                                                                 \
			if (ibv_post_send(f->qp, wr, &bad))                                                               \
				return 0;                                                                                 \
		}                                                                                                         \
		return count;                                                                                             \
	}

PREPARED(send, IBV_WR_SEND, PART, )
PREPARED(write, IBV_WR_RDMA_WRITE, PART, REMOTE)
PREPARED(read, IBV_WR_RDMA_READ, PART, REMOTE)
PREPARED(atomic, IBV_WR_ATOMIC_CMP_AND_SWP, WORD, ATOMIC)

uint64_t c_prepared_receive(const struct fixture *f, uint64_t count)
{
	struct ibv_sge sge = { .length = PART, .lkey = f->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_recv_wr *bad;
		wr.wr_id = i;
		sge.addr = part(f, i);
		if (ibv_post_recv(f->qp, &wr, &bad))
			return 0;
	}
	return count;
}

uint64_t c_prepared_receive_chain(const struct fixture *f, uint64_t count)
{
	struct ibv_sge sge[CHAIN];
	struct ibv_recv_wr wr[CHAIN];
	for (uint64_t k = 0; k < CHAIN; k++) {
		sge[k] = (struct ibv_sge){ .length = PART, .lkey = f->lkey };
		wr[k] = (struct ibv_recv_wr){ .next = k + 1 < CHAIN ? &wr[k + 1] : NULL, .sg_list = &sge[k], .num_sge = 1 };
	}
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_recv_wr *bad;
		for (uint64_t k = 0; k < CHAIN; k++) {
			wr[k].wr_id = i + k;
			sge[k].addr = part(f, i + k);
		}
		if (ibv_post_recv(f->qp, wr, &bad))
			return 0;
	}
	return count;
}
