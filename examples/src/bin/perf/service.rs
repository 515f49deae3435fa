//! The transport services: what each has of the operations, and how its queue pairs find each other.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use verbs::{
    AddressHandle, AddressHandleAttributes, ConnectOptions, Connected, Endpoint, Grh, InlineSlice, LocalEndpoint,
    LocalSlice, QueuePair, Rc, RemoteSlice, SendRequest, Transport, Uc, Ud,
};

use crate::options::Operation;

/// What a datagram has to carry to be received; perftest's value.
const QKEY: u32 = 0x1111_1111;

/// The transport service that the queue pairs have, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Connection {
    /// Reliable connection: all operations
    Rc,
    /// Unreliable connection: send and write
    Uc,
    /// Unreliable datagram: send, of messages up to the MTU
    Ud,
}

impl Connection {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rc => Rc::NAME,
            Self::Uc => Uc::NAME,
            Self::Ud => Ud::NAME,
        }
    }

    /// Refuses an operation that the service does not have.
    pub(crate) fn check(self, op: Operation) -> Result<()> {
        let those: &[Self] = match op {
            Operation::Send => &[Self::Rc, Self::Uc, Self::Ud],
            Operation::Write => &[Self::Rc, Self::Uc],
            Operation::Read | Operation::Atomic => &[Self::Rc],
        };
        let names = those.iter().map(|connection| connection.name()).collect::<Vec<_>>().join(" or ");
        ensure!(those.contains(&self), "{self} has no {op}: ask for --connection {names}");
        Ok(())
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the data of a request is.
#[derive(Clone, Copy)]
pub(crate) enum Data<'a> {
    Registered(&'a [LocalSlice<'a>]),
    Inline(&'a [InlineSlice<'a>]),
}

/// What a request does, whatever the service.
#[derive(Clone, Copy)]
pub(crate) struct Action<'a> {
    pub(crate) op: Operation,
    pub(crate) data: Data<'a>,
    /// What RDMA and atomics are on.
    pub(crate) remote: RemoteSlice,
    /// The last message of a test. Only a SEND tells the peer, and does so by its immediate data.
    pub(crate) is_last: bool,
}

/// A transport service, as the tests use it.
pub(crate) trait Service: Transport + Sized {
    /// What a request has to name to reach the peer's queue pair.
    type Peer;

    /// How many bytes arrive in front of a message.
    const HEADER: usize = 0;

    /// A message is one packet.
    const ONE_PACKET: bool = false;

    /// From now on, receives can be posted.
    fn init(qp: &QueuePair<Self>, local: &LocalEndpoint, options: &ConnectOptions) -> verbs::Result<()>;

    /// From now on, the peer's queue pair can be sent to.
    fn connect(
        qp: &QueuePair<Self>,
        local: &LocalEndpoint,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> verbs::Result<Self::Peer>;

    /// The request, unless the service does not have the operation.
    fn request<'a>(action: Action<'a>, to: &'a Self::Peer) -> Option<SendRequest<'a, Self>>;
}

impl Service for Rc {
    type Peer = ();

    fn init(qp: &QueuePair<Self>, local: &LocalEndpoint, options: &ConnectOptions) -> verbs::Result<()> {
        qp.init(local, options)
    }

    fn connect(
        qp: &QueuePair<Self>,
        local: &LocalEndpoint,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> verbs::Result<()> {
        qp.connect(local, remote, options)
    }

    #[inline]
    fn request<'a>(action: Action<'a>, (): &'a ()) -> Option<SendRequest<'a, Self>> {
        match (action.op, action.data) {
            (Operation::Read, Data::Registered(local)) => Some(SendRequest::rdma_read(0, local, action.remote)),
            (Operation::Atomic, Data::Registered(local)) => {
                Some(SendRequest::fetch_and_add(0, local, action.remote, 1))
            }
            _ => connected(action),
        }
    }
}

impl Service for Uc {
    type Peer = ();

    fn init(qp: &QueuePair<Self>, local: &LocalEndpoint, options: &ConnectOptions) -> verbs::Result<()> {
        qp.init(local, options)
    }

    fn connect(
        qp: &QueuePair<Self>,
        local: &LocalEndpoint,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> verbs::Result<()> {
        qp.connect(local, remote, options)
    }

    #[inline]
    fn request<'a>(action: Action<'a>, (): &'a ()) -> Option<SendRequest<'a, Self>> {
        connected(action)
    }
}

/// A request of those that both connected services have.
#[inline]
fn connected<T: Connected>(Action { op, data, remote, is_last }: Action<'_>) -> Option<SendRequest<'_, T>> {
    Some(match (op, data) {
        (Operation::Send, Data::Registered(local)) if is_last => SendRequest::send_with_imm(0, local, 0),
        (Operation::Send, Data::Registered(local)) => SendRequest::send(0, local),
        (Operation::Send, Data::Inline(data)) if is_last => SendRequest::send_inline_with_imm(0, data, 0),
        (Operation::Send, Data::Inline(data)) => SendRequest::send_inline(0, data),
        (Operation::Write, Data::Registered(local)) => SendRequest::rdma_write(0, local, remote),
        (Operation::Write, Data::Inline(data)) => SendRequest::rdma_write_inline(0, data, remote),
        (Operation::Read | Operation::Atomic, _) => return None,
    })
}

/// Where datagrams go.
pub(crate) struct Way {
    ah: AddressHandle,
    qp_num: u32,
}

impl Service for Ud {
    type Peer = Way;
    const HEADER: usize = Grh::LEN;
    const ONE_PACKET: bool = true;

    fn init(qp: &QueuePair<Self>, local: &LocalEndpoint, _options: &ConnectOptions) -> verbs::Result<()> {
        qp.init(local, QKEY)
    }

    fn connect(
        qp: &QueuePair<Self>,
        local: &LocalEndpoint,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> verbs::Result<Way> {
        qp.activate(local, QKEY)?;
        let mut attributes = AddressHandleAttributes::between(local, remote)?;
        attributes.service_level = options.service_level;
        Ok(Way { ah: qp.protection_domain().create_address_handle(&attributes)?, qp_num: remote.qp_num })
    }

    #[inline]
    fn request<'a>(action: Action<'a>, Way { ah, qp_num }: &'a Way) -> Option<SendRequest<'a, Self>> {
        let Action { op: Operation::Send, data, is_last, .. } = action else { return None };
        Some(match data {
            Data::Registered(local) if is_last => SendRequest::send_to_with_imm(0, local, ah, *qp_num, QKEY, 0),
            Data::Registered(local) => SendRequest::send_to(0, local, ah, *qp_num, QKEY),
            Data::Inline(data) if is_last => SendRequest::send_to_inline_with_imm(0, data, ah, *qp_num, QKEY, 0),
            Data::Inline(data) => SendRequest::send_to_inline(0, data, ah, *qp_num, QKEY),
        })
    }
}

/// The request, or that the service does not have the operation.
#[inline]
pub(crate) fn request<'a, T: Service>(action: Action<'a>, to: &'a T::Peer) -> Result<SendRequest<'a, T>> {
    T::request(action, to).with_context(|| format!("{} has no {}", T::NAME, action.op))
}
