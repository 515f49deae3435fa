//! One end: the device's objects, and how they are laid out and connected.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};
use verbs::{
    AccessFlags, CompletionQueue, CompletionQueueBuilder, ConnectOptions, Context, Endpoint, GidFilter, HeldSlice,
    LocalEndpoint, LocalSlice, MemoryRegion, Mtu, QueuePair, RemoteSlice, SharedReceiveQueue,
};

use crate::agreement::Plan;
use crate::options::Options;
use crate::service::Service;

/// Messages begin at the beginning of a page, as perftest's do.
const PAGE: usize = 4096;

/// What one end tells the other before they are connected.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) plan: Plan,
    endpoints: Vec<String>,
    memory: String,
    /// How many RDMA READs and atomics this end serves at once, and how many it has under way.
    serves: u8,
    begins: u8,
}

/// The objects of one end, ready to be connected.
pub(crate) struct End<T: Service> {
    pub(crate) context: Context,
    pub(crate) qps: Vec<QueuePair<T>>,
    /// What each queue pair's requests name to reach the peer's; none before they are connected.
    pub(crate) peers: Vec<T::Peer>,
    /// Where all queue pairs take their receives from, if it was asked for.
    pub(crate) srq: Option<SharedReceiveQueue>,
    /// Where all of the queue pairs' completions are found.
    pub(crate) cq: CompletionQueue,
    pub(crate) locals: Vec<LocalEndpoint>,
    /// Atomics, since peers write where the program looks for what they wrote.
    pub(crate) region: MemoryRegion<Box<[AtomicU64]>>,
    /// Where the first page of the region begins.
    first_page: usize,
    /// How many bytes each queue pair has for outgoing messages, and as many again for incoming ones.
    half: usize,
    /// As many bytes as a message that is sent inline can have.
    inline_data: Vec<u8>,
    serves: u8,
    begins: u8,
    connect_options: ConnectOptions,
}

impl<T: Service> End<T> {
    /// Opens the device, and makes all that the test needs.
    pub(crate) fn open(options: &Options) -> Result<Self> {
        let mtu = options.mtu.map(Mtu::from_bytes).transpose().context("--mtu")?;
        let context = verbs::devices()?.find(options.ib_dev.as_deref())?.open()?;
        let device = context.device_attributes()?;
        let port = context.port(options.ib_port)?;
        let largest = options.largest();
        ensure!(
            largest <= port.max_message_size() as usize,
            "--size is {largest}, and a message of {} has at most {} bytes",
            context.device().name(),
            port.max_message_size()
        );
        if let Some(mtu) = mtu.filter(|mtu| *mtu > port.active_mtu()) {
            return Err(anyhow!(
                "--mtu is {mtu}, but the active MTU of port {} is {}",
                options.ib_port,
                port.active_mtu()
            ));
        }
        check_packet::<T>(largest, mtu.unwrap_or(port.active_mtu()))?;
        let pd = context.create_protection_domain()?;

        let half = (largest + T::HEADER).next_multiple_of(PAGE);
        let bytes = 2 * half * options.qps as usize + PAGE;
        let words = bytes / size_of::<AtomicU64>();
        let mut memory: Vec<AtomicU64> = Vec::new();
        memory
            .try_reserve_exact(words)
            .with_context(|| format!("no memory for {bytes} bytes: ask for a smaller --size, or for fewer --qp"))?;
        memory.extend((0..words).map(|_| AtomicU64::new(0)));
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let region = pd.register(memory.into_boxed_slice(), access)?;
        let first_page = region.as_ptr().align_offset(PAGE);

        let channel = options.events.then(|| context.create_completion_channel()).transpose()?;
        let completions = options.tx_depth.saturating_add(options.rx_depth).saturating_mul(options.qps);
        let mut cq = CompletionQueueBuilder::new(&context, completions);
        if let Some(channel) = &channel {
            cq = cq.channel(channel);
        }
        let cq = cq.build()?;
        let srq = options.use_srq.then(|| pd.create_shared_receive_queue(options.rx_depth)).transpose()?;
        let qps = (0..options.qps)
            .map(|_| {
                let builder = QueuePair::<T>::builder(&pd, &cq, &cq).max_send_wr(options.tx_depth);
                let builder = builder.max_recv_wr(options.rx_depth).max_inline_data(options.inline_size);
                match &srq {
                    Some(srq) => builder.shared_receive_queue(srq).build(),
                    None => builder.build(),
                }
            })
            .collect::<verbs::Result<Vec<_>>>()?;

        let mut connect_options = ConnectOptions::default();
        connect_options.path_mtu = mtu;
        connect_options.service_level = options.sl;
        let local = |qp: &QueuePair<T>| match options.gid_index {
            Some(index) => qp.local_endpoint_with_gid_index(options.ib_port, index),
            None => qp.local_endpoint(options.ib_port, &GidFilter::default()),
        };
        let locals = qps.iter().map(local).collect::<verbs::Result<Vec<_>>>()?;
        for (qp, local) in qps.iter().zip(&locals) {
            T::init(qp, local, &connect_options)?;
        }
        let limit = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        let begins = limit(device.max_qp_init_rd_atom());
        Ok(Self {
            serves: limit(device.max_qp_rd_atom()),
            inline_data: vec![0; options.inline_size as usize],
            begins: options.outs.map_or(begins, |outs| outs.min(begins)),
            context,
            qps,
            peers: Vec::new(),
            srq,
            cq,
            locals,
            region,
            first_page,
            half,
            connect_options,
        })
    }

    pub(crate) fn hello(&self, options: &Options) -> Result<Hello> {
        Ok(Hello {
            plan: Plan::new(options),
            endpoints: self.locals.iter().map(|local| local.endpoint.to_string()).collect(),
            memory: self.region.remote_slice(self.first_page..)?.to_string(),
            serves: self.serves,
            begins: self.begins,
        })
    }

    /// Connects each queue pair with the peer's of the same index; returns the peer's memory and the path MTU.
    pub(crate) fn connect(&mut self, options: &Options, peer: &Hello) -> Result<(RemoteSlice, Mtu)> {
        self.connect_options.max_rd_atomic = self.begins.min(peer.serves).max(1);
        self.connect_options.max_dest_rd_atomic = self.serves.min(peer.begins).max(1);
        ensure!(peer.endpoints.len() == self.qps.len(), "the peer has {} queue pairs", peer.endpoints.len());
        let mut mtu = Mtu::MTU_4096;
        for ((qp, local), remote) in self.qps.iter().zip(&self.locals).zip(&peer.endpoints) {
            let remote: Endpoint = remote.parse()?;
            let to = T::connect(qp, local, &remote, &self.connect_options)
                .with_context(|| format!("cannot connect to the peer's queue pair {remote}"))?;
            self.peers.push(to);
            mtu = self.connect_options.path_mtu_between(local, &remote)?;
        }
        check_packet::<T>(options.largest(), mtu)?;
        Ok((peer.memory.parse()?, mtu))
    }

    /// Where the messages that a queue pair sends begin, counted from the first page on; the peer's layout is the same.
    pub(crate) fn outgoing(&self, index: usize) -> usize {
        2 * self.half * index
    }

    /// Where the messages for a queue pair arrive.
    pub(crate) fn incoming(&self, index: usize) -> usize {
        self.outgoing(index) + self.half
    }

    /// The `size` bytes at `offset` from the first page on.
    pub(crate) fn slice(&self, offset: usize, size: usize) -> Result<LocalSlice<'_>> {
        let start = self.first_page + offset;
        Ok(self.region.slice(start..start + size)?)
    }

    /// The room for what arrives, held for receives that are prepared.
    pub(crate) fn hold_incoming(&self, index: usize) -> Result<HeldSlice> {
        let start = self.first_page + self.incoming(index);
        Ok(self.region.hold(start..start + self.half)?)
    }

    /// The data of a message that is small enough to be sent inline.
    pub(crate) fn inline_data(&self, size: usize) -> Option<&[u8]> {
        self.inline_data.get(..size)
    }

    /// What the peer's atomics have added up to, on all queue pairs.
    pub(crate) fn counters(&self) -> u64 {
        let word = |index| (self.first_page + self.outgoing(index)) / size_of::<AtomicU64>();
        let count = |index| self.region.as_atomics()[word(index)].load(Ordering::Acquire);
        (0..self.qps.len()).map(count).fold(0, u64::wrapping_add)
    }

    /// The byte at `offset` from the first page on: its word, and its place in the word.
    pub(crate) fn byte(&self, offset: usize) -> Byte<'_> {
        let offset = self.first_page + offset;
        let word = size_of::<AtomicU64>();
        Byte { word: &self.region.as_atomics()[offset / word], place: offset % word }
    }
}

/// Refuses messages that the service cannot send in one packet, if it has to.
fn check_packet<T: Service>(largest: usize, mtu: Mtu) -> Result<()> {
    let fits = !T::ONE_PACKET || mtu.bytes().is_none_or(|bytes| largest <= bytes as usize);
    ensure!(fits, "--size is {largest}, and a message of {} is one packet, here of at most {mtu} bytes", T::NAME);
    Ok(())
}

/// A byte of memory that a device or a peer may change at any time.
#[derive(Clone, Copy)]
pub(crate) struct Byte<'a> {
    word: &'a AtomicU64,
    place: usize,
}

impl Byte<'_> {
    #[inline]
    pub(crate) fn get(self) -> u8 {
        self.word.load(Ordering::Acquire).to_ne_bytes()[self.place]
    }

    /// Sets the byte, in memory into which no peer writes meanwhile.
    #[inline]
    pub(crate) fn set(self, value: u8) {
        let mut bytes = self.word.load(Ordering::Relaxed).to_ne_bytes();
        bytes[self.place] = value;
        self.word.store(u64::from_ne_bytes(bytes), Ordering::Release);
    }
}
