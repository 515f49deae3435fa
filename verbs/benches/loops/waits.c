/*
 * The loop of waits.rs as a C program has it.
 */
#include <poll.h>
#include "loops.h"

/* Polls, arms, polls again and sleeps until the channel tells. The events are acked in bulk, as the manual recommends. */
uint64_t c_wait(const struct fixture *f, uint64_t count)
{
	struct ibv_comp_channel *channel = f->cq->channel;
	struct ibv_wc wc[ROOM];
	unsigned int events = 0;
	uint64_t done = 0;
	for (uint64_t i = 0; i < count; i++) {
		int n = poll_some(f->cq, wc);
		while (n == 0) {
			struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
			struct ibv_cq *cq;
			void *context;
			if (ibv_req_notify_cq(f->cq, 0))
				return 0;
			n = poll_some(f->cq, wc);
			if (n)
				break;
			if (poll(&fd, 1, -1) != 1 || ibv_get_cq_event(channel, &cq, &context))
				return 0;
			events++;
			n = poll_some(f->cq, wc);
		}
		if (n < 0)
			return 0;
		done += n;
	}
	ibv_ack_cq_events(f->cq, events);
	return done;
}
