//! Safe RDMA connection management over librdmacm: connect queue pairs by IP address.
//!
//! A connection that is made here has an ordinary [`verbs::QueuePair`]; this crate finds the device, the path and the peer, exchanges
//! the numbers, and takes the queue pair through its states.
//!
//! # A client and a server
//!
//! ```no_run
//! use verbs::{AccessFlags, SendRequest, WorkCompletion};
//!
//! fn main() -> cm::Result<()> {
//!     let connection = cm::connect("storage.example.net:7471")?;
//!     let region = connection.protection_domain().register(b"Hello, RDMA!".to_vec(), AccessFlags::empty())?;
//!     let message = [region.slice(..)?];
//!     connection.queue_pair().post_send(&SendRequest::send(1, &message).signaled())?;
//!     let mut completions = [WorkCompletion::default(); 1];
//!     for completion in connection.completion_queue().wait(&mut completions, None)? {
//!         completion.success()?;
//!     }
//!     connection.disconnect()
//! }
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use verbs::{AccessFlags, ReceiveRequest, WorkCompletion};
//!
//! fn main() -> cm::Result<()> {
//!     let listener = cm::Listener::bind("0.0.0.0:7471")?;
//!     while let Some(request) = listener.next_request(None)? {
//!         let Ok(incoming) = request.prepare(&cm::ConnectionOptions::default()) else { continue };
//!         let region = incoming.protection_domain().register(vec![0; 4096], AccessFlags::LOCAL_WRITE)?;
//!         incoming.queue_pair().post_receive(&ReceiveRequest::new(1, &[region.slice(..)?]))?;
//!         // A client that has died is no reason to end.
//!         let Ok(connection) = incoming.accept() else { continue };
//!         let queue = connection.completion_queue();
//!         for completion in queue.wait(&mut [WorkCompletion::default()], Some(Duration::from_secs(10)))? {
//!             let Ok(message) = completion.success() else { continue };
//!             println!("{}", String::from_utf8_lossy(&region.to_vec(..message.byte_len().unwrap_or(0) as usize)?));
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Step by step
//!
//! What [`connect`](connect()) and [`Listener`] do can be done by hand, with an [`EventChannel`] and [`Id`]s; each call is answered by an
//! [event](EventKind).
//!
//! ```text
//!   the active side                                              the passive side
//!
//!   EventChannel::create, create_id                              EventChannel::create, create_id
//!                                                                Id::bind, Id::listen
//!   Id::resolve_addr
//!     AddressResolved ◂─ (the kernel)
//!   Id::resolve_route
//!     RouteResolved   ◂─ (the kernel, the subnet manager)
//!   QueuePair::builder, Id::init_queue_pair, post_receive
//!   Id::connect ──────────────── request (REQ) ─────────────────▸  ConnectRequest, with a new Id
//!                                                                QueuePair::builder, Id::init_queue_pair, post_receive
//!                                                                Id::connect_queue_pair
//!     ConnectResponse ◂────────── answer (REP) ───────────────── Id::accept           (or Id::reject ──▸ Rejected)
//!   Id::connect_queue_pair
//!   Id::establish ────────── ready to use (RTU) ────────────────▸  Established
//!
//!                            … SEND, RDMA READ, RDMA WRITE …
//!
//!   Id::disconnect ───────────── end (DREQ) ────────────────────▸  Disconnected
//!     Disconnected    ◂────────── (DREP) ─────────────────────── Id::disconnect
//!     TimewaitExit                                                 TimewaitExit
//! ```
//!
//! For datagrams ([`PortSpace::UDP`]) the request and its answer tell the queue pair and the Q_Key, and that is all:
//!
//! ```text
//!   Id::resolve_addr, Id::resolve_route                          Id::bind, Id::listen
//!   Id::connect ──────────── request (SIDR REQ) ────────────────▸  ConnectRequest
//!     DatagramEstablished ◂─── answer (SIDR REP) ─────────────── Id::accept           (or Id::reject ──▸ DatagramRejected)
//!   create_address_handle, SendRequest::send_to
//! ```
//!
//! # What belongs to whom
//!
//! * Events are copied as they are taken, and acknowledged at once: none is ever left for which dropping an id would wait.
//! * A [`ConnectionRequest`] owns its id. Dropped, it is rejected.
//! * librdmacm opens each device once, and gives it a protection domain. [`Id::context`] and [`Id::protection_domain`] lend them; they are
//!   never closed, as in C. Objects of a context that the program opened by itself do not go together with them.
//! * Ids, channels and queue pairs may be dropped in any order, connected or not. Dropping an id tells the peer that the connection has
//!   ended; dropping the last handle of a channel with its last id closes it.
//!
//! # Threads
//!
//! All types can be used from several threads. A channel's lock is held for each call on its ids, none of which waits for a peer. (After
//! [`Id::notify`], disconnecting and dropping the id wait for the kernel, up to a second.)
//!
//! # File descriptors
//!
//! A channel has one, and two more once its descriptor ([`AsFd`](std::os::fd::AsFd)) is asked for; a thread that waits for events has one for
//! itself. So a [`Connection`] costs two: that of its channel, and that of its completion channel, unless the options bring queues along.
#![deny(unsafe_code)]

mod address;
mod address_info;
mod channel_state;
mod connection;
mod connection_options;
mod connection_request;
mod datagram;
mod device;
mod ece;
mod error;
mod event;
mod event_channel;
mod id;
mod id_place;
mod incoming;
mod listener;
mod listener_options;
mod lookup;
mod multicast;
mod open_enum;
mod options;
mod outgoing;
mod parameters;
mod port_space;
mod queue_pair;
mod raw_id;
mod rejection;
mod returns;
mod waiting;

/// The raw bindings.
pub use rdmacm_sys as ffi;

pub use address_info::{AddressFamily, AddressHints, AddressInfo, QueuePairType, address_info};
pub use connection::Connection;
pub use connection_options::ConnectionOptions;
pub use connection_request::ConnectionRequest;
pub use datagram::{DatagramConnection, DatagramListener, DatagramRequest};
pub use device::devices;
pub use error::{Error, Result};
pub use event::{DatagramPeer, Event, EventKind};
pub use event_channel::EventChannel;
pub use id::Id;
pub use incoming::IncomingConnection;
pub use listener::{Incoming, Listener};
pub use listener_options::ListenerOptions;
pub use lookup::{Address, ToAddress};
pub use multicast::{MulticastGroup, MulticastMembership, MulticastRole};
pub use outgoing::{OutgoingConnection, Route, connect};
pub use parameters::{ConnectionParameters, Depth, PeerParameters};
pub use port_space::PortSpace;
pub use queue_pair::TransitionOptions;
pub use raw_id::IdKey;
pub use rejection::{DatagramStatus, RejectReason, Rejection};

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send_and_sync<T: Send + Sync>() {}

    #[test]
    fn every_type_can_go_to_another_thread() {
        is_send_and_sync::<EventChannel>();
        is_send_and_sync::<Id>();
        is_send_and_sync::<Event>();
        is_send_and_sync::<ConnectionRequest>();
        is_send_and_sync::<Connection>();
        is_send_and_sync::<IncomingConnection>();
        is_send_and_sync::<OutgoingConnection>();
        is_send_and_sync::<Route>();
        is_send_and_sync::<Listener>();
        is_send_and_sync::<DatagramConnection>();
        is_send_and_sync::<DatagramListener>();
        is_send_and_sync::<DatagramRequest>();
        is_send_and_sync::<MulticastMembership>();
        is_send_and_sync::<MulticastGroup>();
        is_send_and_sync::<ConnectionOptions>();
        is_send_and_sync::<Error>();
        is_send_and_sync::<EventKind>();
        is_send_and_sync::<Incoming<'_>>();
        is_send_and_sync::<ListenerOptions>();
        is_send_and_sync::<Address>();
        is_send_and_sync::<AddressInfo>();
        is_send_and_sync::<DatagramPeer>();
        is_send_and_sync::<ConnectionParameters>();
        is_send_and_sync::<TransitionOptions>();
        is_send_and_sync::<IdKey>();
    }

    /// Does not compile if the type can be cloned: then there are two of the constant.
    macro_rules! has_one_owner {
        ($($kind:ty),*) => {$({
            trait Ambiguous<T> {
                const IS: () = ();
            }
            impl<T> Ambiguous<()> for T {}
            struct Clonable;
            impl<T: Clone> Ambiguous<Clonable> for T {}
            <$kind as Ambiguous<_>>::IS
        })*};
    }

    #[test]
    fn what_ends_when_it_is_dropped_has_one_owner() {
        has_one_owner!(Id, ConnectionRequest, Event, EventKind, MulticastMembership, MulticastGroup);
        has_one_owner!(Connection, IncomingConnection, OutgoingConnection, Route, Listener);
        has_one_owner!(DatagramConnection, DatagramListener, DatagramRequest);
    }
}

// Here, since its programs use `verbs` and `cm`.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
