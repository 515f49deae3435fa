//! Which types can go to another thread, and which can be shared by several: promises that the compiler keeps.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use crate::*;

fn is_send<T: Send>() {}
fn is_send_and_sync<T: Send + Sync>() {}

/// Does not compile if the type has the trait: two implementations then fit.
macro_rules! is_not {
    ($trait:ident: $($type:ty),* $(,)?) => {
        $(const _: fn() = || {
            trait Fits<A> {
                fn fits() {}
            }
            struct HasTheTrait;
            impl<T: ?Sized> Fits<()> for T {}
            impl<T: ?Sized + $trait> Fits<HasTheTrait> for T {}
            <$type as Fits<_>>::fits();
        };)*
    };
}

macro_rules! are {
    ($check:ident: $($type:ty),* $(,)?) => {
        $($check::<$type>();)*
    };
}

#[test]
fn every_object_can_go_to_another_thread_and_be_shared() {
    are!(is_send_and_sync: DeviceList, Device, Context, ProtectionDomain, ThreadDomain, CompletionChannel);
    are!(is_send_and_sync: CompletionQueue, ExtendedCompletionQueue<()>, SharedReceiveQueue, AddressHandle);
    are!(is_send_and_sync: QueuePair<Rc>, QueuePair<Uc>, QueuePair<Ud>, ExtendedSend<'_, Rc>, MulticastAttachment);
    are!(is_send_and_sync: XrcDomain, XrcSendQueuePair, XrcReceiveQueuePair, RawPacketQueuePair, WorkQueue);
    are!(is_send_and_sync: IndirectionTable, Flow, Counters, EspAction, DeviceMemory);
    are!(is_send_and_sync: MemoryRegion<Vec<u8>>, MemoryRegion<Box<[AtomicU64]>>, MemoryRegion<SameMemory>);
    are!(is_send_and_sync: MemoryRegion<DmaBuf>, MemoryRegion<DeviceMemoryRange>, MemoryRegion<NullMemory>);
    are!(is_send_and_sync: MemoryRegion<AddressSpace>, MemoryRegion<ImportedMemory>, MemoryRegion<&'static [u8]>, MemoryRegion<RawBuffer>);
    are!(is_send_and_sync: MemoryWindow<WindowType1>, MemoryWindow<WindowType2>, BindRequest, UnbindRequest);
    are!(is_send_and_sync: AtomicWriteRequest);
    are!(is_send_and_sync: Mapping, RawBuffer, LocalSlice<'_>, LocalSliceMut<'_>, InlineSlice<'_>, HeldSlice);
    are!(is_send_and_sync: CompletionQueueBuilder, QueuePairBuilder<Rc>, SharedReceiveQueueBuilder, WorkQueueBuilder);
    are!(is_send_and_sync: QueuePairModification, ConnectOptions, FlowRule, EspAttributes, SelectiveSignaling);
}

#[test]
fn every_answer_can_go_to_another_thread_and_be_shared() {
    are!(is_send_and_sync: Error, PostError, PollError, CompletionError, RegisterError<Vec<u8>>);
    are!(is_send_and_sync: Reregistration<Vec<u8>>, ReregisterError<Vec<u8>>, AsyncEvent, ObjectId);
    are!(is_send_and_sync: WorkCompletion, Success<'_>, Datagram, ExtendedCompletion<()>, Grh);
    are!(is_send_and_sync: DeviceAttributes, ExtendedDeviceAttributes, PortAttributes, QueuePairAttributes);
    are!(is_send_and_sync: GidEntry, GidFilter, Gid, Guid, Endpoint, LocalEndpoint, RemoteSlice);
    are!(is_send_and_sync: AddressHandleAttributes, AlternatePath);
}

/// What a post writes to through a shared reference: the link of a request.
#[test]
fn a_request_can_go_to_another_thread_and_not_be_posted_by_two() {
    are!(is_send: SendRequest<'_, Rc>, SendRequest<'_, Ud>, ReceiveRequest<'_>, PreparedSend, PreparedSend<1, Ud>, PreparedAtomic);
    are!(is_send: PreparedReceive, SendBatch, SendBatch<Ud>, BatchedSends<'_>, ReceiveSlots);
    is_not!(Sync: SendRequest<'_, Rc>, SendRequest<'_, Ud>, ReceiveRequest<'_>, PreparedSend, PreparedSend<1, Ud>, PreparedAtomic);
    is_not!(Sync: PreparedReceive, SendBatch, SendBatch<Ud>, BatchedSends<'_>, ReceiveSlots);
}

/// A buffer that has to stay on its thread.
struct Local(Box<[u8]>, PhantomData<*mut ()>);

#[expect(unsafe_code, reason = "it is a buffer of the test's own")]
// SAFETY: a slice that was boxed stays where it is, and the parts make up the box.
unsafe impl Buffer for Local {
    type Element = u8;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (std::ptr::NonNull<u8>, usize, ()) {
        self.0.into_raw_parts()
    }

    unsafe fn from_raw_parts(data: std::ptr::NonNull<u8>, length: usize, (): ()) -> Self {
        // SAFETY: the caller passes the parts of the box.
        Self(unsafe { Box::from_raw_parts(data, length, ()) }, PhantomData)
    }
}

#[test]
fn a_region_goes_where_its_buffer_may_go() {
    is_not!(Send: Local, MemoryRegion<Local>, Reregistration<Local>, RegisterError<Local>, ReregisterError<Local>);
    is_not!(Sync: MemoryRegion<Local>);
    is_not!(Send: RawBuffer<*mut u8>);
    is_not!(Sync: RawBuffer<std::cell::Cell<u8>>);
}
