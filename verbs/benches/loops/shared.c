/*
 * The loops of shared.rs as a C program has them.
 */
#include "loops.h"

uint64_t c_shared_receive(const struct fixture *f, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = part(f, i), .length = PART, .lkey = f->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
		struct ibv_recv_wr *bad;
		if (ibv_post_srq_recv(f->srq, &wr, &bad))
			return 0;
	}
	return count;
}

uint64_t c_shared_receive_chain(const struct fixture *f, uint64_t count)
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
		if (ibv_post_srq_recv(f->srq, wr, &bad))
			return 0;
	}
	return count * CHAIN;
}
