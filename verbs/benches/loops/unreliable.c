/*
 * The loops of unreliable.rs as a C program has them.
 */
#include "loops.h"

#define POST_AND_POLL(NAME, OPCODE, ...)                                                                                  \
	uint64_t NAME(const struct fixture *f, uint64_t count)                                                            \
	{                                                                                                                 \
		struct ibv_wc wc[ROOM];                                                                                   \
		uint64_t done = 0;                                                                                        \
		for (uint64_t i = 0; i < count; i++) {                                                                    \
			struct ibv_sge sge = { .addr = part(f, i), .length = PART, .lkey = f->lkey };                     \
			struct ibv_send_wr wr = {                                                                         \
				.wr_id = i,                                                                               \
				.sg_list = &sge,                                                                          \
				.num_sge = 1,                                                                             \
				.opcode = OPCODE,                                                                         \
				.send_flags = IBV_SEND_SIGNALED,                                                          \
				__VA_ARGS__                                                                               \
			};                                                                                                \
			struct ibv_send_wr *bad;                                                                          \
			if (ibv_post_send(f->unreliable, &wr, &bad))                                                      \
				return 0;                                                                                 \
			int n = poll_some(f->cq, wc);                                                                     \
			if (n < 0)                                                                                        \
				return 0;                                                                                 \
			done += n;                                                                                        \
		}                                                                                                         \
		return done;                                                                                              \
	}

POST_AND_POLL(c_unreliable_send, IBV_WR_SEND, )
POST_AND_POLL(c_unreliable_write, IBV_WR_RDMA_WRITE, REMOTE)
