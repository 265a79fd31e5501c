//! The verdict: whether the run has passed, and the reasons if not.

use super::DemoArgs;
use super::crew::Crew;
use super::scenario::{KilledRole, LateWrite, ScenarioOutcome, TransferReason, milliseconds};
use super::shop::Audit;
use serde_json::json;

/// The result of the demo.
pub(crate) struct Verdict {
    args: DemoArgs,
    played: ScenarioOutcome,
    audit: Audit,
    /// The failures; empty if the run has passed.
    problems: Vec<String>,
    /// Remarks that are not failures.
    troubles: Vec<String>,
}

impl Verdict {
    pub(crate) fn new(
        args: &DemoArgs,
        played: ScenarioOutcome,
        audit: Audit,
        left: Vec<String>,
        crew: &Crew,
    ) -> Verdict {
        let mut problems = played.problems.clone();
        problems.extend(left);
        problems.extend(faults(&audit, &played, crew.sales));
        let troubles =
            crew.troubles.iter().map(|(text, count)| format!("{text} ({count} times)")).collect();
        Verdict { args: args.clone(), played, audit, problems, troubles }
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.problems.is_empty() && !self.args.no_lock && !self.args.no_fence
    }

    /// Returns whether a run without its safety failed as it must.
    pub(crate) fn is_expected_failure(&self) -> bool {
        (self.args.no_lock && self.audit.oversold > 0)
            || (self.args.no_fence && self.audit.stale_written > 0)
    }

    /// The proof that a run without its safety gives, or why it proves nothing.
    fn proof(&self) -> Option<String> {
        let (flag, wanted, missing) = match (self.args.no_lock, self.args.no_fence) {
            (true, _) => (
                "--no-lock",
                format!(
                    "the shop oversold by {} pieces: the audit sees what the locks prevent",
                    self.audit.oversold
                ),
                "nothing was oversold, so this run shows nothing",
            ),
            (_, true) => (
                "--no-fence",
                format!(
                    "{} stale writes got in and the stock is wrong by {}: the audit sees what the \
                     fence prevents",
                    self.audit.stale_written, self.audit.oversold
                ),
                "no stale write got in, so this run shows nothing",
            ),
            _ => return None,
        };
        Some(if self.is_expected_failure() {
            format!("expected with {flag}: {wanted}")
        } else {
            format!("NOT as expected with {flag}: {missing}")
        })
    }

    pub(crate) fn json(&self) -> String {
        let object = json!({
            "version": 1,
            "ok": self.is_ok(),
            "members": self.args.members,
            "articles": self.args.articles,
            "seconds": self.args.seconds,
            "seed": self.args.seed,
            "locks": !self.args.no_lock,
            "fence": !self.args.no_fence,
            "sales": self.audit.sales,
            "oversold": self.audit.oversold,
            "double_sales": self.audit.double_sales,
            "stale_refused": self.audit.stale_refused,
            "stale_written": self.audit.stale_written,
            "failovers": self.played.failovers,
            "transfers": self.played.transfers,
            "count": self.played.count,
            "pause_milliseconds": self.played.pause.map(|pause| pause.as_micros() as f64 / 1e3),
            "restarted": self.played.restarted,
            "proof": self.proof(),
            "problems": self.problems,
            "troubles": self.troubles,
        });
        object.to_string()
    }

    pub(crate) fn table(&self) -> String {
        let mut rows = vec![
            ("sales".to_owned(), self.audit.sales.to_string()),
            ("oversold".to_owned(), self.audit.oversold.to_string()),
            ("double sales".to_owned(), self.audit.double_sales.to_string()),
            ("stale writes refused by token".to_owned(), self.audit.stale_refused.to_string()),
            ("stale writes that got in".to_owned(), self.audit.stale_written.to_string()),
        ];
        for failover in &self.played.failovers {
            rows.push((
                format!("fail-over, {} killed", failover.kind.name()),
                format!("{:.1} ms", failover.milliseconds),
            ));
        }
        if let Some(pause) = self.played.pause {
            rows.push(("fail-over, holder stopped".to_owned(), milliseconds(pause)));
        }
        for transfer in &self.played.transfers {
            rows.push((
                transfer.reason.name().to_owned(),
                format!("{:.1} ms", transfer.milliseconds),
            ));
            let silence = format!("{:.1} ms", transfer.silence_milliseconds);
            rows.push(("  longest time without a sale".to_owned(), silence));
        }
        if let Some(count) = self.played.count {
            rows.push((
                "suspension, waited for holders".to_owned(),
                format!("{:.1} ms", count.waited_milliseconds),
            ));
            rows.push(("  sales meanwhile".to_owned(), (count.after - count.before).to_string()));
        }
        rows.push(("restarted and back".to_owned(), self.played.restarted.to_string()));
        let width = rows.iter().map(|(_, value)| value.len()).max().unwrap_or_default();
        let mut text = String::from("\n");
        for (name, value) in rows {
            text += &format!("  {name:<34} {value:>width$}\n");
        }
        text += "\n";
        for trouble in &self.troubles {
            text += &format!("note: {trouble}\n");
        }
        for problem in &self.problems {
            text += &format!("wrong: {problem}\n");
        }
        match self.proof() {
            Some(proof) => text += &format!("{proof}\n"),
            None if self.is_ok() => text += "all is right\n",
            None => {}
        }
        text
    }
}

/// The faults that the audit and the scenario found in the run.
fn faults(audit: &Audit, played: &ScenarioOutcome, reported: u64) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |is_wrong: bool, text: &str| {
        if is_wrong {
            faults.push(text.to_owned());
        }
    };
    fault(audit.sales == 0, "nothing was sold");
    fault(audit.oversold != 0, "oversold: sales and stock differ");
    fault(audit.double_sales != 0, "a piece was sold twice");
    fault(
        audit.stale_written != 0,
        "a write with a lower token got in after one with a higher token",
    );
    fault(audit.stale_refused == 0, "no stale write was refused: the pause missed");
    fault(
        played.late_write != Some(LateWrite::Refused),
        "the stopped worker's late write was not refused",
    );
    // Fewer reported sales are not a fault: a worker may be killed between its commit and its
    // report.
    fault(reported > audit.sales.unsigned_abs(), "sales were reported that the file does not have");
    for kind in
        [KilledRole::Holder, KilledRole::Grantor, KilledRole::Elder, KilledRole::ElderAndGrantor]
    {
        let killed = played.failovers.iter().any(|failover| failover.kind == kind);
        fault(!killed, &format!("no fail-over of the {} was seen", kind.name()));
    }
    for reason in [TransferReason::YoungTurk, TransferReason::Leave] {
        match played.transfers.iter().find(|transfer| transfer.reason == reason) {
            None => fault(true, &format!("not seen: {}", reason.name())),
            Some(transfer) => {
                let names = transfer.unserved.join(", ");
                fault(
                    !names.is_empty(),
                    &format!("{}: these workers got no lock meanwhile: {names}", reason.name()),
                );
            }
        }
    }
    match played.count {
        None => fault(true, "the service was not suspended"),
        Some(count) => {
            fault(
                count.before != count.after,
                "something was sold while the service was suspended",
            );
            fault(count.missing != 0, "the books did not balance while the service was suspended");
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{Count, Failover, GrantorTransfer};
    use super::*;

    fn good() -> (Audit, ScenarioOutcome) {
        let kinds = [
            KilledRole::Holder,
            KilledRole::Grantor,
            KilledRole::Elder,
            KilledRole::ElderAndGrantor,
        ];
        let failovers = kinds.map(|kind| Failover { kind, milliseconds: 1.0, killed: 1 }).to_vec();
        let audit = Audit { sales: 10, stale_refused: 1, ..Audit::default() };
        let transfer = |reason| GrantorTransfer {
            reason,
            milliseconds: 1.0,
            silence_milliseconds: 1.0,
            unserved: Vec::new(),
        };
        let transfers = [TransferReason::YoungTurk, TransferReason::Leave].map(transfer).to_vec();
        let count = Some(Count { before: 7, after: 7, missing: 0, waited_milliseconds: 1.0 });
        (
            audit,
            ScenarioOutcome {
                failovers,
                transfers,
                count,
                late_write: Some(LateWrite::Refused),
                ..ScenarioOutcome::default()
            },
        )
    }

    #[test]
    fn a_run_without_fault_has_none() {
        let (audit, played) = good();
        assert_eq!(faults(&audit, &played, 10), Vec::<String>::new());
    }

    #[test]
    fn each_fault_is_found() {
        let (audit, played) = good();
        for broken in [
            Audit { sales: 0, ..audit },
            Audit { oversold: 1, ..audit },
            Audit { double_sales: 1, ..audit },
            Audit { stale_written: 1, ..audit },
            Audit { stale_refused: 0, ..audit },
        ] {
            assert!(!faults(&broken, &played, 0).is_empty(), "{broken:?}");
        }
        assert_eq!(faults(&audit, &played, 11).len(), 1);
        for missing in 0..played.failovers.len() {
            let mut played = played.clone();
            played.failovers.remove(missing);
            assert_eq!(faults(&audit, &played, 10).len(), 1);
        }
        for spoilt in 0..played.transfers.len() {
            let mut missing = played.clone();
            missing.transfers.remove(spoilt);
            assert_eq!(faults(&audit, &missing, 10).len(), 1);
            let mut played = played.clone();
            played.transfers[spoilt].unserved.push("worker 1: the lock was lost".to_owned());
            assert_eq!(faults(&audit, &played, 10).len(), 1);
        }
        let count = Count { before: 7, after: 7, missing: 0, waited_milliseconds: 1.0 };
        for count in [None, Some(Count { after: 8, ..count }), Some(Count { missing: 1, ..count })]
        {
            let played = ScenarioOutcome { count, ..played.clone() };
            assert_eq!(faults(&audit, &played, 10).len(), 1, "{count:?}");
        }
        let written = ScenarioOutcome { late_write: Some(LateWrite::Written), ..played };
        assert_eq!(faults(&audit, &written, 10).len(), 1);
    }
}
