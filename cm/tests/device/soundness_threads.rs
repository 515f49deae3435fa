//! Four threads do whatever comes into their heads with the same ids, on the same channels.

use std::collections::BTreeMap;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cm::*;
use verbs::{AsyncEventType, QueuePairState};

use crate::harness::*;

const THREADS: u64 = 4;
/// They go on at least that long, and until all that should be seen was seen.
const TIME: Duration = Duration::from_secs(12);
const ALL: [&str; 6] = [
    "RDMA_CM_EVENT_ADDR_RESOLVED",
    "RDMA_CM_EVENT_CONNECT_REQUEST",
    "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_ESTABLISHED",
    "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_MULTICAST_JOIN",
];

/// What the threads share.
struct World {
    channels: [EventChannel; 2],
    /// Where they listen, for connections and for datagrams.
    targets: [SocketAddr; 2],
    ids: Mutex<BTreeMap<IdKey, Arc<Id>>>,
    memberships: Mutex<Vec<MulticastMembership>>,
    requests: Mutex<Vec<ConnectionRequest>>,
    qp_num: AtomicU32,
    /// How often each kind of event was seen.
    seen: Mutex<BTreeMap<&'static str, u32>>,
    calls: AtomicU64,
}

/// A sequence that looks random, and is the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// The last of a list, which is not locked any more when it is dropped.
fn last<T>(list: &Mutex<Vec<T>>) -> Option<T> {
    list.lock().unwrap().pop()
}

impl World {
    fn parameters(&self) -> ConnectionParameters {
        ConnectionParameters::new(self.qp_num.fetch_add(1, Ordering::Relaxed))
    }

    fn has_seen_all(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        ALL.iter().all(|name| seen.contains_key(name))
    }

    fn keep(&self, id: Id) {
        self.ids.lock().unwrap().insert(id.key(), Arc::new(id));
    }

    fn remove(&self, key: IdKey) {
        let id = self.ids.lock().unwrap().remove(&key);
        drop(id);
    }

    /// One of the ids that another thread may use, too.
    fn any(&self, dice: &mut Dice) -> Option<Arc<Id>> {
        let ids = self.ids.lock().unwrap();
        let index = dice.below(ids.len().max(1));
        ids.values().nth(index).cloned()
    }

    /// Takes an event, and does what is the next step, most of the time. Of the results any is right.
    fn take(&self, dice: &mut Dice) {
        let Some(event) = self.channels[dice.below(2)].next_event(Some(Duration::from_millis(2))).unwrap() else {
            return;
        };
        *self.seen.lock().unwrap().entry(event.kind().name()).or_default() += 1;
        let key = event.id();
        let id = self.ids.lock().unwrap().get(&key).cloned();
        match (event.into_kind(), id) {
            (EventKind::ConnectRequest(request), _) => match dice.below(6) {
                0 => drop(request.reject(b"no")),
                1 => drop(request),
                2 => self.requests.lock().unwrap().push(request),
                3 => {
                    drop(request.id().accept(&self.parameters()));
                    drop(request);
                }
                _ => {
                    let id = request.into_id();
                    drop(id.accept(&self.parameters()));
                    self.keep(id);
                }
            },
            (EventKind::AddressResolved, Some(id)) => drop(id.resolve_route(LIMIT)),
            (EventKind::RouteResolved, Some(id)) => drop(id.connect(&self.parameters())),
            (EventKind::ConnectResponse(_), Some(id)) => drop(id.establish()),
            (EventKind::Established(_), Some(id)) if dice.below(2) == 0 => drop(id.disconnect()),
            (EventKind::Established(_) | EventKind::MulticastJoin { .. }, _) => {}
            _ => self.remove(key),
        }
    }

    fn ask(&self, dice: &mut Dice) {
        let which = dice.below(2);
        let space = [PortSpace::TCP, PortSpace::UDP][which];
        let id = self.channels[dice.below(2)].create_id(space).unwrap();
        drop(id.resolve_addr(None, self.targets[which], LIMIT));
        self.keep(id);
    }

    fn join(&self, dice: &mut Dice) {
        let mut id = self.any(dice);
        if dice.below(2) == 0 {
            let bound = self.channels[dice.below(2)].create_id(PortSpace::UDP).unwrap();
            bound.bind((ip(), 0).into()).unwrap();
            let bound = Arc::new(bound);
            self.ids.lock().unwrap().insert(bound.key(), Arc::clone(&bound));
            id = Some(bound);
        }
        let Some(id) = id else { return };
        let group = IpAddr::V4(Ipv4Addr::new(239, 1, 3, dice.below(3) as u8));
        if let Ok(membership) = id.join_multicast(group, MulticastRole::Full) {
            match dice.below(3) {
                0 => drop(membership),
                1 => mem::forget(membership.leave()),
                _ => self.memberships.lock().unwrap().push(membership),
            }
        }
    }

    fn step(&self, dice: &mut Dice) {
        match dice.below(24) {
            0..8 => return self.take(dice),
            8..11 if self.ids.lock().unwrap().len() < 64 => return self.ask(dice),
            8..11 => return self.take(dice),
            11 => return self.join(dice),
            12 => return drop(last(&self.memberships)),
            13 => return drop(last(&self.requests)),
            _ => {}
        }
        let Some(id) = self.any(dice) else { return };
        match dice.below(12) {
            0..3 => drop(id.migrate(&self.channels[dice.below(2)])),
            3 => drop(id.accept(&self.parameters())),
            4 => drop(id.reject(b"late")),
            5 => drop(id.establish()),
            6 => drop(id.disconnect()),
            7 => drop(id.notify(AsyncEventType::COMMUNICATION_ESTABLISHED)),
            8 => drop(id.queue_pair_modification(QueuePairState::READY_TO_SEND)),
            9 => drop((id.context(), id.protection_domain(), id.local_addr(), id.peer_gid(), format!("{id:?}"))),
            _ => self.remove(id.key()),
        }
    }
}

#[test]
fn four_threads_that_do_anything_with_the_same_ids_leave_nothing() {
    let before = possessions_to_keep();
    within(LONG, || {
        let listeners = [PortSpace::TCP, PortSpace::UDP].map(|space| {
            let channel = EventChannel::create().unwrap();
            let id = channel.create_id(space).unwrap();
            id.bind(address()).unwrap();
            id.listen(32).unwrap();
            (channel, id)
        });
        let targets = [&listeners[0], &listeners[1]].map(|(_, id)| id.local_addr().unwrap());
        let [(one, tcp), (other, udp)] = listeners;
        let world = World {
            channels: [one, other],
            targets,
            ids: Mutex::default(),
            memberships: Mutex::default(),
            requests: Mutex::default(),
            qp_num: AtomicU32::new(0x2000),
            seen: Mutex::default(),
            calls: AtomicU64::new(0),
        };
        let (end, limit) = (Instant::now() + TIME, Instant::now() + Duration::from_secs(120));
        thread::scope(|scope| {
            for number in 1..=THREADS {
                let world = &world;
                scope.spawn(move || {
                    let mut dice = Dice(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    while Instant::now() < end || !(world.has_seen_all() || Instant::now() > limit) {
                        let started = Instant::now();
                        world.step(&mut dice);
                        assert!(started.elapsed() < AT_ONCE, "a call took {:?}", started.elapsed());
                        world.calls.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let seen = world.seen.lock().unwrap();
        println!(
            "{} calls, {} ids at the end; {seen:?}",
            world.calls.load(Ordering::Relaxed),
            world.ids.lock().unwrap().len()
        );
        for name in ALL {
            assert!(seen.contains_key(name), "no {name} in {seen:?}");
        }
        drop((tcp, udp));
    });
    has_only(before);
}
