/*
 * The loops of posts.rs as a C program has them: posts alone, one at a time and chains, of requests that are built for each.
 */
#include "loops.h"

#define POSTS(NAME, OPCODE, FLAGS, LENGTH, ...)                                                                           \
	uint64_t c_post_##NAME(const struct fixture *f, uint64_t count)                                                   \
	{                                                                                                                 \
		for (uint64_t i = 0; i < count; i++) {                                                                    \
			struct ibv_sge sge = { .addr = part(f, i), .length = LENGTH, .lkey = f->lkey };                   \
			struct ibv_send_wr wr = {                                                                         \
				.wr_id = i,                                                                               \
				.sg_list = &sge,                                                                          \
				.num_sge = 1,                                                                             \
				.opcode = OPCODE,                                                                         \
				.send_flags = FLAGS,                                                                      \
				__VA_ARGS__                                                                               \
			};                                                                                                \
			struct ibv_send_wr *bad;                                                                          \
			if (ibv_post_send(f->qp, &wr, &bad))                                                              \
				return 0;                                                                                 \
		}                                                                                                         \
		return count;                                                                                             \
	}                                                                                                                 \
                                                                                                                          \
	uint64_t c_post_##NAME##_chain(const struct fixture *f, uint64_t count)                                           \
	{                                                                                                                 \
		for (uint64_t i = 0; i < count; i++) {                                                                    \
			struct ibv_sge sge[CHAIN];                                                                        \
			struct ibv_send_wr wr[CHAIN];                                                                     \
			struct ibv_send_wr *bad;                                                                          \
			for (uint64_t k = 0; k < CHAIN; k++) {                                                            \
				sge[k] = (struct ibv_sge){ .addr = part(f, k), .length = LENGTH, .lkey = f->lkey };       \
				wr[k] = (struct ibv_send_wr){                                                             \
					.wr_id = i + k,                                                                   \
					.next = k + 1 < CHAIN ? &wr[k + 1] : NULL,                                        \
					.sg_list = &sge[k],                                                               \
					.num_sge = 1,                                                                     \
					.opcode = OPCODE,                                                                 \
					.send_flags = FLAGS,                                                              \
					__VA_ARGS__                                                                       \
				};                                                                                        \
			}                                                                                                 \
			if (ibv_post_send(f->qp, wr, &bad))                                                               \
				return 0;                                                                                 \
		}                                                                                                         \
		return count;                                                                                             \
	}

POSTS(send, IBV_WR_SEND, IBV_SEND_SIGNALED, PART, )
POSTS(inline_send, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE, PART, )
POSTS(write, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, PART, REMOTE)
POSTS(inline_write, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, PART, REMOTE)
POSTS(read, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, PART, REMOTE)
POSTS(atomic, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED, WORD, ATOMIC)

uint64_t c_post_receive(const struct fixture *f, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = part(f, i), .length = PART, .lkey = f->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
		struct ibv_recv_wr *bad;
		if (ibv_post_recv(f->qp, &wr, &bad))
			return 0;
	}
	return count;
}

uint64_t c_post_receive_chain(const struct fixture *f, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge[CHAIN];
		struct ibv_recv_wr wr[CHAIN];
		struct ibv_recv_wr *bad;
		for (uint64_t k = 0; k < CHAIN; k++) {
			sge[k] = (struct ibv_sge){ .addr = part(f, k), .length = PART, .lkey = f->lkey };
			wr[k] = (struct ibv_recv_wr){
				.wr_id = i + k,
				.next = k + 1 < CHAIN ? &wr[k + 1] : NULL,
				.sg_list = &sge[k],
				.num_sge = 1
			};
		}
		if (ibv_post_recv(f->qp, wr, &bad))
			return 0;
	}
	return count;
}
