//! Extended reliable connections, raw packets, flows, work queues and counters: objects without a data path.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures.

use std::collections::HashMap;
use std::ffi::c_int;
use std::{mem, ptr};

use verbs::ffi;

use super::control::{destroy, may_make};
use super::device::shared;
use super::srq::ibv_create_srq;
use super::state::{Kind, State, set_errno};

/// What the tests look at.
#[derive(Default)]
pub(super) struct Special {
    /// The last rule that a flow was made of: an `ibv_flow_attr` and what follows it.
    pub(super) rule: Vec<u8>,
    /// Of each flow, how many counters it has.
    pub(super) attached: HashMap<usize, Vec<(u32, u32)>>,
    /// The security parameters indices, and keys, that an action of ESP was made of or changed to.
    pub(super) esp: Vec<(u32, Vec<u8>)>,
    /// The descriptors that XRC domains were opened with.
    pub(super) files: Vec<c_int>,
    /// What receive-side scaling was asked for: the key and the fields.
    pub(super) hash: Option<(Vec<u8>, u64)>,
    /// The receiving ends of extended reliable connections, by their numbers.
    receivers: HashMap<u32, usize>,
}

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.open_xrcd = Some(open_xrcd);
    verbs.close_xrcd = Some(close_xrcd);
    verbs.create_srq_ex = Some(create_srq_ex);
    verbs.open_qp = Some(open_qp);
    verbs.ibv_create_flow = Some(create_flow);
    verbs.ibv_destroy_flow = Some(destroy_flow);
    verbs.create_wq = Some(create_wq);
    verbs.modify_wq = Some(modify_wq);
    verbs.destroy_wq = Some(destroy_wq);
    verbs.create_rwq_ind_table = Some(create_rwq_ind_table);
    verbs.destroy_rwq_ind_table = Some(destroy_rwq_ind_table);
    verbs.create_counters = Some(create_counters);
    verbs.destroy_counters = Some(destroy_counters);
    verbs.attach_counters_point_flow = Some(attach_counters_point_flow);
    verbs.read_counters = Some(read_counters);
    verbs.create_flow_action_esp = Some(create_flow_action_esp);
    verbs.modify_flow_action_esp = Some(modify_flow_action_esp);
    verbs.destroy_flow_action = Some(destroy_flow_action);
}

/// Makes an object that knows its context only, out of others.
fn make<T: 'static>(state: &mut State, verb: &str, kind: Kind, parents: &[(Kind, usize)], object: T) -> *mut T {
    if !may_make(state, verb, parents) {
        return ptr::null_mut();
    }
    let object = state.keep(object);
    let parents: Vec<usize> = parents.iter().map(|(_, address)| *address).collect();
    state.add(kind, object as usize, &parents);
    object
}

/// How a call on an object fails, if it does.
fn fails(state: &mut State, verb: &str, kind: Kind, address: usize) -> Option<c_int> {
    if let Some(fault) = state.fault(verb) {
        set_errno(fault.errno);
        return Some(fault.returns.unwrap_or(fault.errno));
    }
    (!state.check(kind, address, verb)).then_some(libc::EINVAL)
}

unsafe extern "C" fn open_xrcd(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_xrcd_init_attr,
) -> *mut ffi::ibv_xrcd {
    // SAFETY: the context is one of ours, and the caller passes a structure.
    let (mut state, attributes) = unsafe { (shared(context).lock(), *attributes) };
    let parents = [(Kind::Context, context as usize)];
    let xrcd = make(&mut state, "ibv_open_xrcd", Kind::XrcDomain, &parents, ffi::ibv_xrcd { context });
    if !xrcd.is_null() {
        assert_eq!((attributes.comp_mask, attributes.oflags), (3, libc::O_CREAT));
        state.special.files.push(attributes.fd);
    }
    xrcd
}

unsafe extern "C" fn close_xrcd(xrcd: *mut ffi::ibv_xrcd) -> c_int {
    // SAFETY: the domain is one of ours.
    let mut state = unsafe { shared((*xrcd).context) }.lock();
    destroy(&mut state, "ibv_close_xrcd", Kind::XrcDomain, xrcd as usize).err().unwrap_or(0)
}

unsafe extern "C" fn create_srq_ex(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_srq_init_attr_ex,
) -> *mut ffi::ibv_srq {
    // SAFETY: the caller passes a structure.
    let attributes = unsafe { &mut *attributes };
    assert_eq!((attributes.srq_type, attributes.comp_mask), (ffi::ibv_srq_type::IBV_SRQT_XRC, 15));
    let parents = [(Kind::XrcDomain, attributes.xrcd as usize), (Kind::CompletionQueue, attributes.cq as usize)];
    // SAFETY: the context is one of ours.
    if !may_make(&mut unsafe { shared(context) }.lock(), "ibv_create_srq_ex", &parents) {
        return ptr::null_mut();
    }
    let mut plain = ffi::ibv_srq_init_attr { srq_context: attributes.srq_context, attr: attributes.attr };
    // SAFETY: the domain is one of ours, and `plain` outlives the call.
    let srq = unsafe { ibv_create_srq(attributes.pd, &mut plain) };
    if !srq.is_null() {
        // SAFETY: as above.
        let mut state = unsafe { shared(context) }.lock();
        for (_, parent) in parents {
            state.adopt(srq as usize, parent);
        }
    }
    srq
}

/// Makes a queue pair without queues of its own: a receiving end, or one with an indirection table. `None`: it is another one.
///
/// # Safety
///
/// The context is one of the provider's.
pub(super) unsafe fn create_qp_ex(
    context: *mut ffi::ibv_context,
    attributes: &ffi::ibv_qp_init_attr_ex,
) -> Option<*mut ffi::ibv_qp> {
    use ffi::ibv_qp_init_attr_mask as Mask;
    let xrc = Mask::IBV_QP_INIT_ATTR_XRCD.0;
    let spread = Mask::IBV_QP_INIT_ATTR_PD.0 | Mask::IBV_QP_INIT_ATTR_IND_TABLE.0 | Mask::IBV_QP_INIT_ATTR_RX_HASH.0;
    let parents = match attributes.comp_mask {
        mask if mask == xrc => vec![(Kind::XrcDomain, attributes.xrcd as usize)],
        mask if mask == spread => {
            vec![(Kind::Domain, attributes.pd as usize), (Kind::IndirectionTable, attributes.rwq_ind_tbl as usize)]
        }
        _ => return None,
    };
    // SAFETY: as the caller says; all zeroes are a valid structure.
    let (mut state, mut qp) = unsafe { (shared(context).lock(), mem::zeroed::<ffi::ibv_qp>()) };
    (qp.context, qp.pd, qp.qp_type, qp.qp_num) = (context, attributes.pd, attributes.qp_type, state.number());
    let number = qp.qp_num;
    let qp = make(&mut state, "ibv_create_qp_ex", Kind::QueuePair, &parents, qp);
    if attributes.comp_mask == xrc && !qp.is_null() {
        state.special.receivers.insert(number, qp as usize);
    } else if !qp.is_null() {
        let hash = attributes.rx_hash_conf;
        // SAFETY: the caller passes a key of this length.
        let key = unsafe { std::slice::from_raw_parts(hash.rx_hash_key, hash.rx_hash_key_len.into()) };
        assert_eq!(hash.rx_hash_function, 1);
        state.special.hash = Some((key.to_vec(), hash.rx_hash_fields_mask));
    }
    Some(qp)
}

unsafe extern "C" fn open_qp(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_qp_open_attr,
) -> *mut ffi::ibv_qp {
    // SAFETY: the context is one of ours, the caller passes a structure, and all zeroes are a valid `ibv_qp`.
    let (mut state, attributes, mut qp) =
        unsafe { (shared(context).lock(), *attributes, mem::zeroed::<ffi::ibv_qp>()) };
    assert_eq!((attributes.qp_type, attributes.comp_mask), (ffi::ibv_qp_type::IBV_QPT_XRC_RECV, 11));
    if !state.special.receivers.contains_key(&attributes.qp_num) {
        set_errno(libc::ENOENT);
        return ptr::null_mut();
    }
    (qp.context, qp.qp_type, qp.qp_num) = (context, attributes.qp_type, attributes.qp_num);
    let parents = [(Kind::XrcDomain, attributes.xrcd as usize)];
    make(&mut state, "ibv_open_qp", Kind::QueuePair, &parents, qp)
}

unsafe extern "C" fn create_flow(qp: *mut ffi::ibv_qp, rule: *mut ffi::ibv_flow_attr) -> *mut ffi::ibv_flow {
    use ffi::ibv_flow_spec_type as Spec;
    // SAFETY: the queue pair is one of ours, and the rule is as long as it says.
    let (context, bytes) =
        unsafe { ((*qp).context, std::slice::from_raw_parts(rule.cast::<u8>(), (*rule).size.into()).to_vec()) };
    let mut parents = vec![(Kind::QueuePair, qp as usize)];
    // SAFETY: as above; the structures follow the rule's, each as long as it says.
    unsafe {
        let mut offset = size_of::<ffi::ibv_flow_attr>();
        for _ in 0..(*rule).num_of_specs {
            let header = rule.cast::<u8>().add(offset);
            let counting: *const ffi::ibv_flow_spec_counter_action = header.cast();
            match header.cast::<Spec>().read() {
                Spec::IBV_FLOW_SPEC_ACTION_COUNT => parents.push((Kind::Counters, (*counting).counters as usize)),
                Spec::IBV_FLOW_SPEC_ACTION_HANDLE => parents.push((Kind::FlowAction, (*counting).counters as usize)),
                _ => {}
            }
            offset += usize::from(header.add(4).cast::<u16>().read());
        }
        assert_eq!(offset, bytes.len());
    }
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    let flow = ffi::ibv_flow { comp_mask: 0, context, handle: 0 };
    let flow = make(&mut state, "ibv_create_flow", Kind::Flow, &parents, flow);
    if !flow.is_null() {
        state.special.rule = bytes;
    }
    flow
}

unsafe extern "C" fn destroy_flow(flow: *mut ffi::ibv_flow) -> c_int {
    // SAFETY: the flow is one of ours.
    let mut state = unsafe { shared((*flow).context) }.lock();
    destroy(&mut state, "ibv_destroy_flow", Kind::Flow, flow as usize).err().unwrap_or(0)
}

unsafe extern "C" fn create_wq(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_wq_init_attr,
) -> *mut ffi::ibv_wq {
    // SAFETY: the context is one of ours, the caller passes a structure, and all zeroes are a valid `ibv_wq`.
    let (mut state, attributes, mut wq) =
        unsafe { (shared(context).lock(), *attributes, mem::zeroed::<ffi::ibv_wq>()) };
    let flags = ffi::ibv_wq_init_attr_mask::IBV_WQ_INIT_ATTR_FLAGS.0;
    if attributes.max_wr > 1 << 14 || (attributes.comp_mask & flags == 0) != (attributes.create_flags == 0) {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    (wq.context, wq.pd, wq.cq, wq.wq_num) = (context, attributes.pd, attributes.cq, state.number());
    let parents = [(Kind::Domain, attributes.pd as usize), (Kind::CompletionQueue, attributes.cq as usize)];
    make(&mut state, "ibv_create_wq", Kind::WorkQueue, &parents, wq)
}

unsafe extern "C" fn modify_wq(wq: *mut ffi::ibv_wq, attributes: *mut ffi::ibv_wq_attr) -> c_int {
    // SAFETY: the queue is one of ours, and the caller passes a structure.
    unsafe {
        if let Some(code) = fails(&mut shared((*wq).context).lock(), "ibv_modify_wq", Kind::WorkQueue, wq as usize) {
            return code;
        }
        if (*attributes).attr_mask != ffi::ibv_wq_attr_mask::IBV_WQ_ATTR_STATE.0 {
            return libc::EINVAL;
        }
        (*wq).state = (*attributes).wq_state;
    }
    0
}

unsafe extern "C" fn destroy_wq(wq: *mut ffi::ibv_wq) -> c_int {
    // SAFETY: the queue is one of ours.
    let mut state = unsafe { shared((*wq).context) }.lock();
    destroy(&mut state, "ibv_destroy_wq", Kind::WorkQueue, wq as usize).err().unwrap_or(0)
}

unsafe extern "C" fn create_rwq_ind_table(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_rwq_ind_table_init_attr,
) -> *mut ffi::ibv_rwq_ind_table {
    // SAFETY: the context is one of ours, and the caller passes a structure with as many queues as it says.
    let (mut state, queues) = unsafe {
        let length = 1 << (*attributes).log_ind_tbl_size;
        (shared(context).lock(), std::slice::from_raw_parts((*attributes).ind_tbl, length))
    };
    let parents: Vec<_> = queues.iter().map(|queue| (Kind::WorkQueue, *queue as usize)).collect();
    // SAFETY: all zeroes are a valid structure.
    let mut table: ffi::ibv_rwq_ind_table = unsafe { mem::zeroed() };
    table.context = context;
    make(&mut state, "ibv_create_rwq_ind_table", Kind::IndirectionTable, &parents, table)
}

unsafe extern "C" fn destroy_rwq_ind_table(table: *mut ffi::ibv_rwq_ind_table) -> c_int {
    // SAFETY: the table is one of ours.
    let mut state = unsafe { shared((*table).context) }.lock();
    destroy(&mut state, "ibv_destroy_rwq_ind_table", Kind::IndirectionTable, table as usize).err().unwrap_or(0)
}

unsafe extern "C" fn create_counters(
    context: *mut ffi::ibv_context,
    _attributes: *mut ffi::ibv_counters_init_attr,
) -> *mut ffi::ibv_counters {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    let parents = [(Kind::Context, context as usize)];
    make(&mut state, "ibv_create_counters", Kind::Counters, &parents, ffi::ibv_counters { context })
}

unsafe extern "C" fn destroy_counters(counters: *mut ffi::ibv_counters) -> c_int {
    // SAFETY: the counters are ours.
    let mut state = unsafe { shared((*counters).context) }.lock();
    destroy(&mut state, "ibv_destroy_counters", Kind::Counters, counters as usize).err().unwrap_or(0)
}

unsafe extern "C" fn attach_counters_point_flow(
    counters: *mut ffi::ibv_counters,
    attributes: *mut ffi::ibv_counter_attach_attr,
    flow: *mut ffi::ibv_flow,
) -> c_int {
    // SAFETY: the counters are ours, and the caller passes a structure.
    let (mut state, attributes) = unsafe { (shared((*counters).context).lock(), *attributes) };
    if let Some(code) = fails(&mut state, "ibv_attach_counters_point_flow", Kind::Counters, counters as usize) {
        return code;
    }
    if !flow.is_null() {
        if !state.check(Kind::Flow, flow as usize, "ibv_attach_counters_point_flow") {
            return libc::EINVAL;
        }
        state.adopt(flow as usize, counters as usize);
    }
    let attached = state.special.attached.entry(counters as usize).or_default();
    attached.push((attributes.index, attributes.counter_desc.0));
    0
}

unsafe extern "C" fn read_counters(
    counters: *mut ffi::ibv_counters,
    values: *mut u64,
    count: u32,
    flags: u32,
) -> c_int {
    // SAFETY: the counters are ours.
    let mut state = unsafe { shared((*counters).context) }.lock();
    if let Some(code) = fails(&mut state, "ibv_read_counters", Kind::Counters, counters as usize) {
        return code;
    }
    let attached = state.special.attached.get(&(counters as usize)).cloned().unwrap_or_default();
    if attached.len() < count as usize {
        return libc::EINVAL;
    }
    for (index, description) in attached.into_iter().filter(|(index, _)| *index < count) {
        // What tells the counters, and the ways to read them, apart.
        let value = 1000 * u64::from(description + 1) + u64::from(flags);
        // SAFETY: there is room for `count` values.
        unsafe { values.add(index as usize).write(value) };
    }
    0
}

/// # Safety
///
/// The attributes are valid.
unsafe fn note_esp(state: &mut State, attributes: *mut ffi::ibv_flow_action_esp_attr) {
    // SAFETY: as the caller says.
    unsafe {
        let keymat = &*(*attributes).keymat_ptr.cast::<ffi::ib_uverbs_flow_action_esp_keymat_aes_gcm>();
        assert_eq!(usize::from((*attributes).keymat_len), size_of_val(keymat));
        let key = keymat.aes_key.iter().flat_map(|word| word.to_ne_bytes()).take(keymat.key_len as usize);
        state.special.esp.push(((*(*attributes).esp_attr).spi, key.collect()));
    }
}

unsafe extern "C" fn create_flow_action_esp(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_flow_action_esp_attr,
) -> *mut ffi::ibv_flow_action {
    // SAFETY: the context is one of ours, and the caller passes valid attributes.
    unsafe {
        let mut state = shared(context).lock();
        let parents = [(Kind::Context, context as usize)];
        let action = ffi::ibv_flow_action { context };
        let action = make(&mut state, "ibv_create_flow_action_esp", Kind::FlowAction, &parents, action);
        if !action.is_null() {
            note_esp(&mut state, attributes);
        }
        action
    }
}

unsafe extern "C" fn modify_flow_action_esp(
    action: *mut ffi::ibv_flow_action,
    attributes: *mut ffi::ibv_flow_action_esp_attr,
) -> c_int {
    // SAFETY: the action is one of ours, and the caller passes valid attributes.
    unsafe {
        let mut state = shared((*action).context).lock();
        let failure = fails(&mut state, "ibv_modify_flow_action_esp", Kind::FlowAction, action as usize);
        if failure.is_none() {
            note_esp(&mut state, attributes);
        }
        failure.unwrap_or(0)
    }
}

unsafe extern "C" fn destroy_flow_action(action: *mut ffi::ibv_flow_action) -> c_int {
    // SAFETY: the action is one of ours.
    let mut state = unsafe { shared((*action).context) }.lock();
    destroy(&mut state, "ibv_destroy_flow_action", Kind::FlowAction, action as usize).err().unwrap_or(0)
}
