//! Checks of the holds of each lock by their tokens. They take the whole record.

use super::lock_call::{HoldInterval, Lock, LockCall};
use crate::history_checker::Findings;
use crate::record::RecordedRequest;
use std::collections::BTreeMap;

/// Finds holds that exclude each other and overlap: the hold with the higher token must begin when
/// the other is over.
pub(super) fn find_crowds(
    lock: &Lock<'_>,
    holds: &[(HoldInterval, &LockCall<'_>)],
    findings: &mut Findings,
) {
    // For each mode, a hold is compared with the hold of the longest belief.
    let mut last: BTreeMap<RecordedRequest, (HoldInterval, &LockCall<'_>)> = BTreeMap::new();
    for (stay, call) in holds {
        let from = stay.from;
        findings.premise("exclusive_by_lease");
        for (_, (before, other)) in
            last.iter().filter(|(request_kind, _)| !request_kind.suffers(stay.request_kind))
        {
            let is_alone = before.request_kind == RecordedRequest::Lock
                && stay.request_kind == RecordedRequest::Lock;
            let name = if is_alone { "exclusive_by_lease" } else { "no_writer_with_reader" };
            findings.premise(name);
            findings.premise("tokens_rise");
            if before.from > from {
                let what = format!(
                    "{} of call {} for {lock:?} begins before a lower one",
                    stay.token, call.number
                );
                findings.flaw("tokens_rise", before.from, what);
            }
            if other.lost.is_some_and(|lost| lost <= from) {
                findings.premise("told_before_regrant");
            }
            if before.until > from {
                let call_text =
                    |call: &LockCall<'_>| format!("call {} of m{}", call.number, call.site);
                let what =
                    format!("{lock:?} is held by {} and by {}", call_text(other), call_text(call));
                findings.flaw(name, from, what);
            }
        }
        if last.get(&stay.request_kind).is_none_or(|(before, _)| before.until <= stay.until) {
            last.insert(stay.request_kind, (*stay, call));
        }
    }
}

/// The permits that are believed in at one instant never exceed the highest limit until then.
pub(super) fn find_excess(
    lock: &Lock<'_>,
    holds: &[(HoldInterval, &LockCall<'_>)],
    limits: &[(u64, u64)],
    findings: &mut Findings,
) {
    const NAME: &str = "permits_never_exceed_limit";
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for (stay, call) in
        holds.iter().filter(|(stay, _)| stay.request_kind == RecordedRequest::Permits)
    {
        let mut from = stay.from;
        let left = (u64::MAX, call.permits);
        for (until, permits) in call.more.iter().chain([&left]) {
            let until = (*until).min(stay.until).max(from);
            changes.extend([(from, i64::from(*permits)), (until, -i64::from(*permits))]);
            from = until;
        }
    }
    // An end at the instant of another hold's beginning comes before it.
    changes.sort_unstable();
    let mut sum = 0;
    for (at, change) in changes {
        sum += change;
        findings.premise(NAME);
        let known = limits.partition_point(|(since, _)| *since <= at);
        let most = known.checked_sub(1).map_or(u64::MAX, |index| limits[index].1);
        if change > 0 && u64::try_from(sum).is_ok_and(|sum| sum > most) {
            findings.flaw(
                NAME,
                at,
                format!("{sum} permits of {lock:?} are out, and there were never more than {most}"),
            );
        }
    }
}

/// Returns whether a later epoch of the service had begun when a hold was told. Then the order of
/// telling follows the links, or the later grantor's answers, and not the order of granting.
pub(super) fn is_late(
    epochs: &BTreeMap<u64, (&str, u64)>,
    service: &str,
    hold: &HoldInterval,
) -> bool {
    epochs.range(hold.token..).any(|(_, (of, told))| *of == service && *told <= hold.from)
}

/// The first tokens of ranges, or epochs, with their services and times.
type FirstTokens<'a> = BTreeMap<u64, (&'a str, u64)>;

/// Independent of clocks, each token of a lock is of the latest range below it. That range is of
/// its service and was told by then. The holds of one site begin in the order of their tokens.
/// Shares among themselves are excepted: a member may keep some of their tokens for later.
pub(super) fn find_strays(
    (ranges, epochs): (&FirstTokens<'_>, &FirstTokens<'_>),
    lock: &Lock<'_>,
    holds: &[(HoldInterval, &LockCall<'_>)],
    findings: &mut Findings,
) {
    let mut began: BTreeMap<(usize, bool), (u64, &HoldInterval)> = BTreeMap::new();
    for (hold, call) in holds {
        let (token, from) = (&hold.token, hold.from);
        findings.premise("tokens_rise");
        let range = ranges.range(..=token).next_back();
        let is_its = |(_, (of, told)): (&u64, &(&str, u64))| *of == lock.0 && *told <= from;
        if !range.is_some_and(is_its) {
            let what = format!(
                "{token} of call {} for {lock:?} is of no range: {range:?} is below it",
                call.number
            );
            findings.flaw("tokens_rise", from, what);
        }
        // An earlier grantor's grant may be told late. Beside a compatible hold that does not
        // matter.
        let is_share = hold.request_kind == RecordedRequest::Share;
        for of_shares in [false, true] {
            if let Some((lower, before)) = began.get(&(call.site, of_shares))
                && !(is_share && of_shares)
                && before.order > hold.order
                && !(before.request_kind.suffers(hold.request_kind)
                    && is_late(epochs, lock.0, before))
            {
                let what = format!(
                    "m{} has {lock:?} with {lower}, and had it with {token} before",
                    call.site
                );
                findings.flaw("tokens_rise", before.from, what);
            }
        }
        let last = began.entry((call.site, is_share)).or_insert((*token, hold));
        if !is_share || last.1.order < hold.order {
            *last = (*token, hold);
        }
    }
}

/// A suspension excludes all other holds of the service, except holds of the same owner. Owner
/// zero, the whole member, counts as each owner of its member.
pub(super) fn find_company(calls: &BTreeMap<usize, LockCall<'_>>, findings: &mut Findings) {
    let mut holds: BTreeMap<&str, Vec<(&LockCall<'_>, u64, u64)>> = BTreeMap::new();
    for call in calls.values() {
        let stays = call.stays().into_iter().map(|stay| (call, stay.from, stay.until));
        holds.entry(call.service).or_default().extend(stays);
    }
    for holds in holds.values() {
        for (suspension, from, until) in
            holds.iter().filter(|(call, ..)| call.request_kind == RecordedRequest::Suspend)
        {
            findings.premise("suspension_is_exclusive");
            for (hold, began, ended) in
                holds.iter().filter(|(hold, ..)| hold.number != suspension.number)
            {
                let is_own = (hold.site, hold.life) == (suspension.site, suspension.life)
                    && (hold.owner == suspension.owner || hold.owner == 0 || suspension.owner == 0);
                if !is_own && began < until && from < ended {
                    let call_text =
                        |call: &LockCall<'_>| format!("call {} of m{}", call.number, call.site);
                    let what = format!(
                        "{} suspends {} beside {}",
                        call_text(suspension),
                        suspension.service,
                        call_text(hold)
                    );
                    findings.flaw("suspension_is_exclusive", *(from.max(began)), what);
                }
            }
        }
    }
}
