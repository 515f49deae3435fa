//! The loops of loops.c through the safe interface.

use std::array;
use std::ops::Range;

use verbs::*;

use super::datagrams::QKEY;
use super::theirs;
use crate::null_provider::{DataPath, NullProvider, Polls};

pub(crate) const ROOM: usize = 16;
pub(crate) const CHAIN: usize = 16;
pub(super) const PART: usize = 64;
const PARTS: usize = 64;
/// What an atomic operation is on.
pub(super) const WORD: usize = 8;

/// Memory that is not registered.
static MESSAGES: [u8; PART * PARTS] = [0; PART * PARTS];

/// What the loops use.
pub(crate) struct Objects {
    pub(super) qp: QueuePair<Rc>,
    pub(super) cq: CompletionQueue,
    extended: QueuePair<Rc>,
    pub(super) extended_cq: ExtendedCompletionQueue<(completion_field::ByteLen,)>,
    pub(super) unreliable: QueuePair<Uc>,
    pub(super) datagram: QueuePair<Ud>,
    pub(super) ah: AddressHandle,
    pub(super) srq: SharedReceiveQueue,
    pub(super) region: MemoryRegion<Vec<u8>>,
    pub(super) remote: RemoteSlice,
    _provider: NullProvider,
}

impl Objects {
    pub(crate) fn new(polls: Polls) -> Self {
        let provider = NullProvider::new();
        let context = provider.open_with(DataPath::Plain(polls));
        let pd = context.create_protection_domain().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build().unwrap();
        let extended_cq = CompletionQueueBuilder::new(&context, 64).build_extended().unwrap();
        let builder = |cq: &CompletionQueue| QueuePair::builder(&pd, cq, cq).max_inline_data(PART as u32);
        let qp = builder(&cq).build().unwrap();
        let extended = builder(extended_cq.as_completion_queue()).require_extended().build().unwrap();
        let unreliable = QueuePair::<Uc>::builder(&pd, &cq, &cq).build().unwrap();
        let datagram = QueuePair::<Ud>::builder(&pd, &cq, &cq).build().unwrap();
        let local = datagram.local_endpoint(1, &GidFilter::default()).unwrap();
        datagram.activate(&local, QKEY).unwrap();
        let ah = pd.create_address_handle_to(&local, &local.endpoint).unwrap();
        let srq = pd.create_shared_receive_queue(64).unwrap();
        let region = pd.register(vec![0; PART * PARTS], AccessFlags::LOCAL_WRITE).unwrap();
        let remote = RemoteSlice::new(0x7f00_0000_1000, 4096, 0x77).unwrap();
        Self { qp, cq, extended, extended_cq, unreliable, datagram, ah, srq, region, remote, _provider: provider }
    }

    pub(crate) fn for_c(&self) -> theirs::Fixture {
        theirs::Fixture {
            qp: self.qp.as_raw(),
            cq: self.cq.as_raw(),
            extended: self.extended.as_raw(),
            extended_cq: self.extended_cq.as_raw(),
            unreliable: self.unreliable.as_raw(),
            datagram: self.datagram.as_raw(),
            ah: self.ah.as_raw(),
            srq: self.srq.as_raw(),
            buffer: self.region.as_ptr(),
            remote_addr: self.remote.address(),
            lkey: self.region.lkey(),
            rkey: self.remote.rkey(),
        }
    }

    #[inline(always)]
    pub(super) fn plain(&self) -> &QueuePair<Rc> {
        &self.qp
    }

    #[inline(always)]
    pub(super) fn extended(&self) -> ExtendedSend<'_, Rc> {
        self.extended.extended().unwrap()
    }

    #[inline(always)]
    pub(super) fn part(&self, i: u64) -> Result<LocalSlice<'_>> {
        self.region.slice(range(i, PART))
    }

    #[inline(always)]
    pub(super) fn word(&self, i: u64) -> Result<LocalSlice<'_>> {
        self.region.slice(range(i, WORD))
    }

    #[inline(always)]
    pub(super) fn inline(&self, i: u64) -> Result<InlineSlice<'_>> {
        Ok(InlineSlice::new(&MESSAGES[range(i, PART)]))
    }
}

/// Where so many bytes of the request `i` are.
#[inline(always)]
pub(super) fn range(i: u64, length: usize) -> Range<usize> {
    let offset = i as usize % PARTS * PART;
    offset..offset + length
}

/// A loop: how often, and how much was done.
pub(crate) type Loop = fn(&Objects, u64) -> Result<u64>;

/// Counts the requests that have completed.
#[inline(always)]
pub(super) fn poll_some(cq: &CompletionQueue, room: &mut [WorkCompletion], done: &mut u64) -> Result<()> {
    for completion in cq.poll(room)? {
        completion.success()?;
        *done += 1;
    }
    Ok(())
}

/// A request is built, posted and polled.
macro_rules! fresh {
    ($name:ident, |$objects:ident, $i:ident, $slices:ident = $slice:ident| $request:expr) => {
        pub(crate) fn $name($objects: &Objects, count: u64) -> Result<u64> {
            let mut room = [WorkCompletion::default(); ROOM];
            let mut done = 0;
            for $i in 0..count {
                let $slices = &[$objects.$slice($i)?];
                $objects.qp.post_send(&$request.signaled())?;
                poll_some(&$objects.cq, &mut room, &mut done)?;
            }
            Ok(done)
        }
    };
}

fresh!(send, |objects, i, slices = part| SendRequest::send(i, slices));
fresh!(write, |objects, i, slices = part| SendRequest::rdma_write(i, slices, objects.remote));
fresh!(write_with_imm, |objects, i, slices = part| SendRequest::rdma_write_with_imm(i, slices, objects.remote, i as u32));
fresh!(read, |objects, i, slices = part| SendRequest::rdma_read(i, slices, objects.remote));

fresh!(fetch_and_add, |objects, i, slices = word| SendRequest::fetch_and_add(i, slices, objects.remote, i));

pub(crate) fn send_inline(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    let data = [7; PART * PARTS];
    for i in 0..count {
        let offset = i as usize % PARTS * PART;
        let slices = &[InlineSlice::new(&data[offset..offset + PART])];
        objects.qp.post_send(&SendRequest::send_inline(i, slices).signaled())?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

/// A request that is built once, and gets a new identifier.
pub(crate) fn prepared(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    let mut write = PreparedSend::rdma_write(0, [objects.region.hold(..PART)?], objects.remote).signaled();
    for i in 0..count {
        write.set_wr_id(i);
        objects.qp.post_prepared_send(&write)?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

/// A request that is built once, and gets a new identifier, range and remote memory.
pub(crate) fn prepared_range(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    let mut write = PreparedSend::rdma_write(0, [objects.region.hold(..PART)?], objects.remote).signaled();
    for i in 0..count {
        let offset = i as usize % PARTS * PART;
        write.set_wr_id(i);
        write.set_range(0, offset..offset + PART)?;
        write.set_remote(objects.remote)?;
        objects.qp.post_prepared_send(&write)?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

/// A chain that is built once, and whose requests get new identifiers.
pub(crate) fn prepared_chain(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    let prepare = |k: usize| {
        let slice = objects.region.hold(k * PART..(k + 1) * PART)?;
        Ok(PreparedSend::rdma_write(0, [slice], objects.remote).signaled())
    };
    let mut writes = (0..CHAIN).map(prepare).collect::<Result<Vec<_>>>()?;
    for i in 0..count {
        for (k, write) in writes.iter_mut().enumerate() {
            write.set_wr_id(i + k as u64);
        }
        objects.qp.post_send_chain(&mut writes)?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

/// A chain in memory that is used again and again.
pub(crate) fn batch(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    let mut batch = SendBatch::with_capacity(CHAIN);
    for i in 0..count {
        let mut chain = batch.begin();
        for k in 0..CHAIN as u64 {
            let write = SendRequest::rdma_write(i + k, &[], objects.remote).signaled();
            chain.push_with(write, &[objects.part(k)?]);
        }
        objects.qp.post_send_chain(&mut chain)?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

/// Every 16th request is signaled; its completion frees the slots of those before it.
pub(crate) fn selective(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    let mut sends = SelectiveSignaling::new(&objects.qp, CHAIN as u32, 0);
    for i in 0..count {
        let slices = &[objects.part(i)?];
        sends.post(&objects.qp, &mut SendRequest::rdma_write(i, slices, objects.remote))?;
        if sends.outstanding() < CHAIN as u32 {
            continue;
        }
        for completion in objects.cq.poll(&mut room)? {
            completion.success()?;
            done += u64::from(sends.retire(completion));
        }
    }
    Ok(done)
}

pub(crate) fn chain(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    for i in 0..count {
        let slices: [_; CHAIN] = array::from_fn(|k| [objects.part(k as u64).unwrap()]);
        let mut requests: [_; CHAIN] =
            array::from_fn(|k| SendRequest::rdma_write(i + k as u64, &slices[k], objects.remote).signaled());
        objects.qp.post_send_chain(&mut requests)?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

pub(crate) fn receive(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    for i in 0..count {
        objects.qp.post_receive(&ReceiveRequest::new(i, &[objects.part(i)?]))?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

/// Receives into the slots of a region, all posted again with one doorbell.
pub(crate) fn receive_slots(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    let mut receives = ReceiveSlots::new(objects.region.hold(..CHAIN * PART)?, PART, 0)?;
    for _ in 0..count {
        receives.refill(&objects.qp)?;
        for completion in objects.cq.poll(&mut room)? {
            completion.success()?;
            if receives.take(completion).is_some() {
                receives.release(completion.wr_id())?;
                done += 1;
            }
        }
    }
    Ok(done)
}

/// A queue that is always full: the identifiers are looked at.
pub(crate) fn poll_full<const N: usize>(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); N];
    let (mut done, mut sum) = (0, 0);
    for _ in 0..count {
        let completions = objects.cq.poll(&mut room)?;
        done += completions.len() as u64;
        for completion in completions {
            sum += completion.success()?.wr_id();
        }
    }
    Ok(if sum == 0 { done } else { 0 })
}

pub(crate) fn poll_empty(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    for _ in 0..count {
        done += 1 + objects.cq.poll(&mut room)?.len() as u64;
    }
    Ok(done)
}
