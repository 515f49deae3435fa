/*
 * The loops of datagrams.rs as a C program has them.
 */
#include "loops.h"

#define UD .wr.ud = { .ah = f->ah, .remote_qpn = 7, .remote_qkey = 0x11111111 }

uint64_t c_datagram(const struct fixture *f, uint64_t count)
{
	struct ibv_wc wc[ROOM];
	uint64_t done = 0;

	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = part(f, i), .length = PART, .lkey = f->lkey };
		struct ibv_send_wr wr = {
			.wr_id = i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
			UD
		};
		struct ibv_send_wr *bad;
		if (ibv_post_send(f->datagram, &wr, &bad))
			return 0;
		int n = poll_some(f->cq, wc);
		if (n < 0)
			return 0;
		done += n;
	}
	return done;
}

uint64_t c_datagram_chain(const struct fixture *f, uint64_t count)
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
				.opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED,
				UD
			};
		}
		if (ibv_post_send(f->datagram, wr, &bad))
			return 0;
		int n = poll_some(f->cq, wc);
		if (n < 0)
			return 0;
		done += n;
	}
	return done;
}
