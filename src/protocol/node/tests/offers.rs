//! Locks that are taken without a step, as offered by the node.

use super::*;
use crate::protocol::message::LockRequest;

/// Two nodes do the same work: one by commands, the other by offers. The local grants of the second
/// are absorbed before anything else happens to it.
#[test]
fn local_grants_come_to_the_same_as_commands() {
    let names = names(6);
    let (mut commanded, mut offered) = (lone(), lone());
    let mut held: BTreeMap<LockName, RequestId> = BTreeMap::new();
    // The local grants in the order of their tokens, and whether each is over. Neither node knows
    // of them yet.
    let mut taken: Vec<(LocalGrant, bool)> = Vec::new();
    let (mut spent, mut offers, mut refusals) = (0, 0, 0);
    let (mut next, mut now, mut draw) = (1, NOW, draws());
    for _ in 0..20_000 {
        now = now + Duration::from_micros(1);
        let name = names[draw(names.len())].clone();
        let owner = OwnerId(draw(3) as u64);
        let lies = taken.iter().position(|(taken, is_over)| taken.name == name && !is_over);
        let rarely = draw(40) == 0;
        match (lies, held.contains_key(&name)) {
            (Some(at), _) if !rarely => {
                taken[at].1 = true;
                continue;
            }
            (None, false) if !rarely => {
                let offer = offered.offer(now, (&service(), &name), true);
                if let Some(LocalOffer::OfService(range)) = offer
                    && let Some(token) = range.nth(spent)
                {
                    spent += 1;
                    offers += 1;
                    taken.push((LocalGrant { name, owner, token, since: now }, false));
                    continue;
                }
                refusals += 1;
            }
            _ => {}
        }
        // Before another command the core absorbs the local grants.
        let mut out = Vec::new();
        let mut left = Vec::new();
        for (taken, is_over) in taken.drain(..) {
            let request = RequestId(next);
            next += 1;
            let token = taken.token;
            commanded.step(
                taken.since,
                Input::Command(locking(request, &taken.name, taken.owner)),
                &mut out,
            );
            let granted =
                Output::Answer { request, outcome: Outcome::Granted { token, until: Time::MAX } };
            assert_eq!(out.pop(), Some(granted));
            if is_over {
                commanded.step(now, Input::Command(Command::Release { request }), &mut out);
            } else {
                held.insert(taken.name.clone(), request);
                left.push((request, taken));
            }
        }
        offered.absorb(&service(), std::mem::take(&mut spent), left);
        let command = match held.remove(&name) {
            Some(request) => Command::Release { request },
            None => {
                let request = RequestId(next);
                next += 1;
                held.insert(name.clone(), request);
                locking(request, &name, owner)
            }
        };
        let mut other = Vec::new();
        commanded.step(now, Input::Command(command.clone()), &mut out);
        offered.step(now, Input::Command(command), &mut other);
        assert_eq!(out, other);
        assert_eq!(commanded, offered);
    }
    assert!(offers > 9000 && refusals > 0, "{offers} offers and {refusals} refusals show nothing");
}

/// A waiter, or a suspension that is held or waits, goes before any local grant.
#[test]
fn nothing_is_offered_where_another_member_is_concerned() {
    let name = LockName::new(b"n").expect("a good name");
    let other = LockName::new(b"o").expect("a good name");
    let mut node = lone();
    let step = |node: &mut Node, command| node.step(NOW, Input::Command(command), &mut Vec::new());
    let offer = |node: &Node, name| node.offer(NOW, (&service(), name), true);
    assert_eq!(offer(&node, &name), None, "no member grants it yet");
    step(&mut node, locking(RequestId(1), &name, OwnerId(1)));
    step(&mut node, locking(RequestId(2), &other, OwnerId(1)));
    step(&mut node, Command::Release { request: RequestId(2) });
    assert_eq!(offer(&node, &name), None, "it is held");
    assert!(offer(&node, &other).is_some());
    assert_eq!(
        node.offer(node.deadline().unwrap_or(Time::MAX), (&service(), &other), true),
        None,
        "something is due"
    );
    step(&mut node, wanting(RequestId(3), Want::Suspension, OwnerId(2)));
    step(&mut node, Command::Release { request: RequestId(2) });
    assert_eq!(offer(&node, &other), None, "a member waits for all of it");
}

fn locking(request: RequestId, name: &LockName, owner: OwnerId) -> Command {
    wanting(request, Want::Lock(name.clone()), owner)
}

fn wanting(request: RequestId, want: Want, owner: OwnerId) -> Command {
    let (service, wait, metadata) = (service(), Wait::Forever, Metadata::default());
    Command::Lock {
        detects: false,
        keeps: false,
        follows: false,
        request,
        service,
        wait,
        lease: None,
        lock: LockRequest { want, owner, revocable: false, metadata },
    }
}
