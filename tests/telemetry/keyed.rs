//! The log of members with a cluster key.

use super::*;
use elderlock::{
    ClusterKey, Keyring, LockName, Metadata, Order, OrderReport, Role, ServiceName, give_order_with,
};

fn new_key() -> ClusterKey {
    ClusterKey::generate().expect("random bytes")
}

/// A member with these keys that founds its cluster, or joins the cluster of the seed.
async fn member_with(ring: Keyring, seed: Option<&Member>) -> (MeteredProcess, Member) {
    let process = MeteredProcess::start();
    let builder = Member::builder("telemetry").bind("127.0.0.1:0").timing(Leases::Long.timing());
    let builder = builder.keyring(ring).forced_revokes(true);
    let builder = match seed {
        Some(seed) => builder.seeds([seed.addr().to_string()]),
        None => builder.found(),
    };
    let member = process.run(builder.join()).await.expect("it joins");
    (process, member)
}

#[tokio::test]
async fn the_line_of_a_connection_names_the_key_of_its_dialler() {
    let [one, other] = [new_key(), new_key()];
    let ring = |first: &ClusterKey, second: &ClusterKey| {
        Keyring::new(first.clone()).with(second.clone()).expect("two fit")
    };
    let (first, founder) = member_with(ring(&one, &other), None).await;
    let (second, _joiner) = member_with(ring(&other, &one), Some(&founder)).await;
    for (process, own, theirs) in [(&first, &one, &other), (&second, &other, &one)] {
        says(&process.log, "DEBUG", "connected").await;
        for line in process.log.named("connected") {
            let key = if line.get("dialled") == "true" { own } else { theirs };
            assert_eq!(line.get("key"), key.name().to_string());
        }
        let all = format!("{:?}", process.log.lines.lock().expect("no panic"));
        for key in [&one, &other] {
            assert!(!all.contains(key.to_base64().as_str()), "a key is in the log");
        }
    }
}

#[tokio::test]
async fn an_order_to_revoke_is_logged_with_its_force() {
    let key = new_key();
    let (process, member) = member_with(Keyring::new(key.clone()), None).await;
    let holder = member.clone();
    let held =
        async move { one(&holder.lock_service("stock").await.expect("a name"), "job").await };
    let guard = process.run(held).await;
    let operator = Keyring::new(key.derive(Role::Operator).expect("it is a cluster key"));
    for (number, force) in [false, true].into_iter().enumerate() {
        let order = Order::Revoke {
            service: ServiceName::new("stock").expect("a name"),
            name: Some(LockName::new(b"job").expect("a name")),
            metadata: Metadata::new(b"it hangs").expect("short"),
            operator: Metadata::new(b"an operator").expect("short"),
            wait: Duration::ZERO,
            force,
        };
        let addr = member.addr().to_string();
        let given = give_order_with(&addr, "telemetry", &operator, order);
        let mut reports = soon(given).await.expect("it is given");
        let mut last = None;
        while let Some(report) = soon(reports.next()).await.expect("it is told") {
            last = Some(report);
        }
        assert_eq!(last, Some(OrderReport::Done { complete: force }));
        assert_eq!(guard.fence().is_err(), force, "it is taken away by force alone");
        let line = process.log.reaches("an operator's order", number + 1).await;
        assert_eq!((line.level.as_str(), line.get("order")), ("INFO", "revoke"));
        assert_eq!((line.get("service"), line.get("lock.name")), ("stock", "job"));
        assert_eq!(line.get("forced"), force.to_string());
        assert!(line.get("addr").starts_with("127.0.0.1:"), "{line:?}");
    }
    process.run(async move { drop(guard) }).await;
}
