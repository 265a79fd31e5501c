//! The goodbye of a member that a fault ends.

use super::short::NodePair;
use super::*;
use crate::protocol::id::Slot;
use crate::protocol::message::LockRequest;

/// The member's holds end before its goodbye, and the elder does not wait for the end of its lease.
#[test]
fn a_member_that_refuses_a_view_for_its_clock_says_goodbye() {
    let mut two = NodePair::new();
    let request = RequestId(1);
    let command = Command::Lock {
        detects: false,
        keeps: false,
        follows: false,
        request,
        service: service(),
        wait: Wait::Forever,
        lease: None,
        lock: LockRequest {
            want: want("x"),
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        },
    };
    two.step(1, Input::Command(command));
    two.pass(Duration::from_millis(10));
    assert!(two.nodes[1].locks.client.holds(request, two.now).is_some());

    let elder = two.nodes[0].cluster.config.me.clone();
    let mut view = two.nodes[1].cluster.view.as_deref().expect("it is a member").clone();
    view.number = view.number.next();
    view.first_slot = view.first_slot.plus(Slot::PER_SECOND * 7200);
    assert!(view.is_sound());
    let heard = |from: &MemberInfo, notice: Notice| {
        let packet = notice.into();
        Input::Received { from: from.process, addr: from.addr, packet }
    };
    let mut out = Vec::new();
    two.nodes[1].step(two.now, heard(&elder, Notice::full_view(&view)), &mut out);
    let is_goodbye = |output: &Output| {
        matches!(output, Output::Send { process, packet: Packet::Notice(notice), .. }
            if *process == Some(elder.process) && **notice == Notice::Leave)
    };
    let at = |is_it: &dyn Fn(&Output) -> bool| out.iter().position(is_it).expect("it is there");
    let is_lost =
        |output: &Output| matches!(output, Output::Lost { request: over, .. } if *over == request);
    let lost = at(&is_lost);
    let ended = at(&|output| matches!(output, Output::Event(Event::WrongClock { .. })));
    assert!(lost < at(&is_goodbye) && at(&is_goodbye) < ended, "{out:?}");

    let me = two.nodes[1].cluster.config.me.clone();
    two.ways[0].push_back(heard(&me, Notice::Leave));
    two.pass(Duration::from_millis(1));
    assert!(!two.nodes[0].cluster.view.as_ref().expect("it is a member").contains(me.process));
}
