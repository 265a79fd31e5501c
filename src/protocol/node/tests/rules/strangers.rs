//! The rules about packets of processes outside the view.

use super::*;
use std::num::NonZeroU64;

/// The information of the process at another address than this member's.
fn at_another_address(node: &Node, process: ProcessId) -> MemberInfo {
    let addr = ([127, 0, 0, 1], 7503).into();
    MemberInfo { process, addr, ..node.cluster.config.me.clone() }
}

/// The outputs of the member when it gets this packet from `from`.
fn received(node: &mut Node, from: ProcessId, packet: Packet) -> Vec<Output> {
    let (addr, mut out) = (([127, 0, 0, 1], 7503).into(), Vec::new());
    node.step(NOW, Input::Received { from, addr, packet }, &mut out);
    out
}

/// The notices that the member sends when it gets this one from `from`.
fn answers(node: &mut Node, from: ProcessId, notice: Notice) -> Vec<Notice> {
    notices(&received(node, from, notice.into()))
}

/// Whether a packet counts for this member if ANN, a member of its view, sends it, and not if CYD
/// does.
fn counts_from_members_only(plant: &Plant, counts: impl Fn(&mut Node, ProcessId) -> bool) -> bool {
    let counts_from = |from: ProcessId| {
        let mut node = with_two_more();
        plant(&mut node);
        counts(&mut node, from)
    };
    assert!(counts_from(ANN), "it is a member");
    !counts_from(CYD)
}

/// The number of the view of [`with_two_more`].
fn present(node: &Node) -> ViewNumber {
    node.cluster.view.as_ref().expect("it has founded").number
}

rule!(a_message_about_locks_counts_from_a_member_of_the_view, HearStrangers, |plant: Plant| {
    let hears = |from: ProcessId| {
        let mut node = with_two_more();
        plant(&mut node);
        let view = node.cluster.view.clone().expect("it has founded");
        node.cx(NOW, &mut Vec::new(), |locks, cx| {
            locks.client.lock(lock_call(RequestId(1), want("x")), Duration::ZERO, |_| false, cx);
        });
        let (epoch, token) = (Epoch(view.first_token()), view.first_token().plus(1));
        let (service, request) = (service(), RequestId(1));
        let grant = ClientMessage::Grant { service, epoch, request, token, kept: 0 };
        let packet =
            Packet::Linked { view: view.number, seq: 1, ack: 0, message: Message::Client(grant) };
        let out = received(&mut node, from, packet);
        out.iter().any(|output| matches!(output, Output::Answer { .. }))
    };
    assert!(hears(BOB), "it is a member");
    !hears(CYD)
});

rule!(a_pulse_counts_from_the_elder_of_the_view, HeedAnyPulse, |plant: Plant| {
    let believes = |from: ProcessId| {
        let mut node = second(&plant);
        let view = node.cluster.view.as_ref().expect("it has founded").number;
        // A renewal of a beat that this member has not sent shows that its id is taken.
        let pulse = Notice::Pulse { view, pulse: 1, renews: 1 << 40, again: false, settled: false };
        let out = received(&mut node, from, pulse.into());
        out.iter().any(|output| matches!(output, Output::Event(Event::IdentityTaken)))
    };
    assert!(believes(ANN), "it is the elder");
    !believes(CYD)
});

rule!(a_request_to_join_counts_from_the_joiner_and_from_members, TakeAnyJoin, |plant: Plant| {
    counts_from_members_only(&plant, |node, from| {
        let (me, heard) = (at_another_address(node, BOB), present(node));
        !answers(node, from, Notice::Join { me, heard }).is_empty()
    })
});

rule!(a_process_that_has_left_a_view_does_not_join_again, AdmitTheGone, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let (me, heard) = (at_another_address(&node, CYD), present(&node));
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    view.departed.push((CYD, heard));
    node.cluster.view = Some(Arc::new(view));
    let answers = answers(&mut node, CYD, Notice::Join { me, heard });
    answers.iter().any(|answer| matches!(answer, Notice::FullView { .. }))
});

rule!(a_suspicion_counts_from_a_member_of_the_view, SuspectForAny, |plant: Plant| {
    counts_from_members_only(&plant, |node, from| {
        let sent = answers(node, from, Notice::SuspectDead { process: BOB });
        sent.iter().any(|notice| matches!(notice, Notice::Hello { .. }))
    })
});

rule!(a_vouched_death_counts_from_a_member_of_the_view, HearAnyVoucher, |plant: Plant| {
    counts_from_members_only(&plant, |node, from| {
        node.cluster.config.trust_refused = true;
        let sent = answers(node, from, Notice::Vouch { dead: BOB });
        sent.iter().any(|notice| matches!(notice, Notice::Vouch { .. }))
    })
});

rule!(a_goodbye_counts_from_a_member_of_the_view, KeepAnyGoodbye, |plant: Plant| {
    counts_from_members_only(&plant, |node, from| {
        received(node, from, Notice::Leave.into());
        node.cluster.elder.as_ref().is_some_and(|elder| elder.goodbyes() > 0)
    })
});

rule!(a_process_founds_only_with_seeds_that_it_has_asked, FoundForAny, |plant: Plant| {
    let agrees = |nonce: Option<NonZeroU64>| {
        let info = |process: u128, port: u16| {
            MemberInfo::new(ProcessId(process), ([127, 0, 0, 1], port).into())
        };
        let (coordinator, me) = (info(3, 7503), info(7, 7400));
        let seeds = BTreeSet::from([coordinator.addr, me.addr]);
        let config = Config { seeds, nonce, ..Config::new(me.clone(), Timing::fast()) };
        let view = View::first(Slot(5), vec![coordinator, me], config.timing, config.council_size);
        let mut node = Node::new(config, Time::from_nanos(1));
        plant(&mut node);
        let sent = answers(&mut node, CYD, Notice::Found { attempt: 1, view });
        sent.iter().any(|notice| matches!(notice, Notice::FoundOk { .. }))
    };
    assert!(agrees(None), "a holder of the key is believed");
    !agrees(NonZeroU64::new(9))
});

/// A process asks to join, from a host of its own.
fn join(node: &mut Node, now: Time, process: u128) {
    let addr = SocketAddr::from(([10, 1, (process >> 8) as u8, process as u8], 7500));
    let me = MemberInfo::new(ProcessId(process), addr);
    let packet = Notice::Join { me, heard: present(node) }.into();
    let received = Input::Received { from: ProcessId(process), addr, packet };
    node.step(now, received, &mut Vec::new());
}

fn learners(node: &Node) -> usize {
    let view = node.cluster.view.as_ref().expect("it has founded");
    view.living().filter(|member| member.learner).count()
}

rule!(an_elder_takes_in_few_processes_that_have_not_shown_themselves, AdmitAllUnshown, |plant| {
    let mut node = elder(&plant);
    let most = node.cluster.config.limits.joins as usize;
    let mut now = NOW;
    for process in 0..200 {
        join(&mut node, now, 1000 + process);
        now = now + Duration::from_millis(5);
        node.step(now, Input::Timer, &mut Vec::new());
    }
    assert!(learners(&node) >= most);
    learners(&node) == most
});

/// A keyless process in no view, and the view that it remembers. ANN at this address was the only
/// voter there, and BOB at a lower address was a learner.
fn after_an_expulsion(ann: SocketAddr, plant: &Plant) -> (Node, View) {
    let info = |process, addr| MemberInfo::new(process, addr);
    let me = info(ProcessId(7), ([127, 0, 0, 1], 7400).into());
    let config = Config { nonce: NonZeroU64::new(9), ..Config::new(me, Timing::fast()) };
    let mut view = View::first(Slot(5), vec![info(ANN, ann)], config.timing, config.council_size);
    let bob = info(BOB, ([127, 0, 0, 1], 7500).into());
    view.members.push(ViewMember { info: bob, joined: view.number, ghost: false, learner: true });
    let config = Config { remembered: Some(view.clone()), ..config };
    let mut node = Node::new(config, Time::from_nanos(1));
    plant(&mut node);
    (node, view)
}

rule!(
    an_answer_from_a_voter_of_the_remembered_view_is_a_proof,
    ForgetRememberedVoters,
    |plant: Plant| {
        let ann: SocketAddr = ([127, 0, 0, 1], 7501).into();
        let (mut node, mut view) = after_an_expulsion(ann, &plant);
        let hellos = |out: &[Output]| {
            let hellos = notices(out).into_iter().filter_map(|notice| match notice {
                Notice::Hello { asked, nonce, .. } => Some((asked, nonce)),
                _ => None,
            });
            hellos.collect::<Vec<_>>()
        };
        let mut greeted = Vec::new();
        for _ in 0..2 {
            let (due, mut out) = (node.deadline().expect("it seeks"), Vec::new());
            node.step(due, Input::Timer, &mut out);
            greeted.extend(hellos(&out));
        }
        let bob: SocketAddr = ([127, 0, 0, 1], 7500).into();
        let asks_for_proof = greeted == [(ann, 9), (bob, 0)];
        // The elder tells the joiner its view, and is asked for it with a proof.
        let info = node.cluster.config.me.clone();
        view.members.push(ViewMember { info, joined: view.number, ghost: false, learner: true });
        let answers = answers(&mut node, ANN, Notice::full_view(&view));
        let fetches = answers.iter().any(|notice| matches!(notice, Notice::Fetch { nonce: 9, .. }));
        asks_for_proof && fetches
    }
);

rule!(a_stranger_asks_to_join_after_no_later_view, TakeJoinOfLaterView, |plant: Plant| {
    let is_taken_in = |ahead: u64, nonce: Option<NonZeroU64>| {
        let mut node = lone();
        node.cluster.config.nonce = nonce;
        plant(&mut node);
        let (me, heard) = (at_another_address(&node, CYD), ViewNumber(present(&node).0 + ahead));
        let out = received(&mut node, CYD, Notice::Join { me, heard }.into());
        out.iter().any(|output| matches!(output, Output::Event(Event::ViewInstalled(_))))
    };
    assert!(is_taken_in(1, None), "a holder of the key is believed");
    assert!(is_taken_in(0, NonZeroU64::new(9)), "it names the present view");
    !is_taken_in(1, NonZeroU64::new(9)) && !is_taken_in(1 << 62, NonZeroU64::new(9))
});
