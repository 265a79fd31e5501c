//! `elderlock revoke`, `why` and `held` as an operator runs them: as processes beside the members,
//! which they reach through sockets.

use elderlock::{Guard, LockService, LostReason, Member, MemberEvent, ReleaseError, Timing, View};
use std::process::Command;
use std::time::Duration;

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(120);

/// On a busy machine a contacted holder may take long to answer, and no lease may end.
const TIMING: Timing = Timing { answer: Timing::wan().member_lease, ..Timing::wan() };

/// The cluster: one member, which is the grantor, the holder and the contacted member.
async fn founded() -> (Member, LockService) {
    let member = Member::builder("shop")
        .bind("127.0.0.1:0")
        .timing(TIMING)
        .found()
        .join()
        .await
        .expect("it founds");
    let service = member.lock_service("inventory").await.expect("a good name");
    (member, service)
}

/// The output and the exit code of `revoke`.
async fn revoke(member: &Member, args: &[&str]) -> (String, Option<i32>) {
    revoke_at(&member.addr().to_string(), args).await
}

async fn revoke_at(addr: &str, args: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    command.env_clear().args(["revoke", "--cluster", "shop", "--at", addr]).args(args);
    run(command).await
}

/// The output and the exit code of another command.
async fn elderlock(member: &Member, args: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    let at = member.addr().to_string();
    command.env_clear().args(args).args(["--cluster", "shop", "--at", &at]);
    run(command).await
}

async fn run(mut command: Command) -> (String, Option<i32>) {
    let run = tokio::task::spawn_blocking(move || command.output().expect("it can be started"));
    let output = tokio::time::timeout(HANG, run).await.expect("it ends").expect("no panic");
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).expect("text"), output.status.code())
}

async fn held(service: &LockService) -> Guard {
    service.lock("sku-42").revocable().metadata("till 3").await.expect("it is free")
}

/// Curator: `Revoker.attemptRevoke`, which reports no result. Here the operator is told the
/// contacted holder and the result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_asked_releases_the_lock() {
    let (member, service) = founded().await;
    let guard = held(&service).await;
    let (process, token) = (member.process(), guard.token());
    let holder = tokio::spawn(async move {
        let request = guard.revocation().requested().await.expect("it is held");
        guard.release().await.expect("it was held until now");
        request.metadata
    });
    let (said, code) = revoke(
        &member,
        &["--service", "inventory", "sku-42", "--why", "stock-taking", "--wait", "2m"],
    )
    .await;
    let (name, addr) = (member.name(), member.addr());
    let me = format!("{name}, process {process} at {addr} with token {token} (till 3)");
    let expected = format!(
        "{me} was told that sku-42 of inventory is requested back: stock-taking\n{me} released it\n"
    );
    assert_eq!((said.as_str(), code), (expected.as_str(), Some(0)));
    let told = tokio::time::timeout(HANG, holder).await.expect("it was told").expect("no panic");
    assert_eq!(told.as_bytes(), b"stock-taking");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_keeps_the_lock_loses_it_by_force_only() {
    let (member, service) = founded().await;
    let guard = held(&service).await;
    let (said, code) =
        revoke(&member, &["--service", "inventory", "sku-42", "--wait", "100ms"]).await;
    assert!(
        said.contains("was told")
            && said.contains("still holds it after 100ms; --force takes it away"),
        "{said}"
    );
    assert_eq!((code, guard.fence()), (Some(1), Ok(guard.token())));

    let (said, code) =
        revoke(&member, &["--service", "inventory", "sku-42", "--wait", "0s", "--force"]).await;
    assert!(said.contains("was told") && said.contains("lost it: taken away"), "{said}");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(guard.release().await, Err(ReleaseError::Lost(LostReason::Revoked)));
    held(&service).await.release().await.expect("it was free");
}

/// A share that was upgraded has another token, and is still held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_that_became_the_lock_was_not_released() {
    let (member, service) = founded().await;
    let share = service.share("sku-42").revocable().await.expect("it is free");
    let holder = tokio::spawn(async move {
        share.revocation().requested().await.expect("it is held");
        share.upgrade().await.expect("there is no other share")
    });
    let (said, code) = revoke(&member, &["--service", "inventory", "sku-42", "--wait", "2m"]).await;
    let lock = tokio::time::timeout(HANG, holder).await.expect("it was told").expect("no panic");
    let expected =
        format!("with token {} took it meanwhile and was not contacted; run again", lock.token());
    assert!(said.contains(&expected), "{said}");
    assert_eq!((code, lock.fence()), (Some(1), Ok(lock.token())), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_and_waiters_are_listed_as_text_and_as_json() {
    let (member, service) = founded().await;
    let process = member.process();
    let (name, addr) = (member.name(), member.addr());
    service.lock("a").await.expect("it is free").release().await.expect("it was held");
    let nothing = "no member holds sku-42 of inventory\nno request waits for it\n";
    let asked = ["why", "--service", "inventory", "sku-42"];
    assert_eq!(elderlock(&member, &asked).await, (nothing.to_owned(), Some(0)));
    let none = "no member holds a lock of inventory\n".to_owned();
    assert_eq!(elderlock(&member, &["held", "inventory"]).await, (none, Some(0)));

    let lock = service.lock("sku-42").owner(6).metadata("till 3\u{1b}").await;
    let lock = lock.expect("it is free");
    let shares = [service.share("b").await.expect("free"), service.share("b").await.expect("so")];
    let first = service.lock("sku-42").owner(7).metadata("till 4").start();
    let second = service.share("sku-42").start();
    while service.inspect("sku-42").await.expect("a grantor answers").waiters.len() < 2 {
        tokio::task::yield_now().await;
    }
    let (said, code) = elderlock(&member, &asked).await;
    let lines: Vec<&str> = said.lines().collect();
    let token = lock.token();
    let held = format!(
        "by owner 6 of {name}, process {process} at {addr} with token {token} (till 3\\u{{1b}})"
    );
    assert!(lines[0].starts_with("sku-42 of inventory is held for ") && lines[0].ends_with(&held));
    let waits = [
        format!("1. owner 7 of {name}, process {process} at {addr} (till 4) waits for the lock"),
        format!("2. {name}, process {process} at {addr} waits for a share"),
    ];
    assert_eq!(lines[1..], waits);
    assert_eq!(code, Some(0));

    let (said, code) = elderlock(&member, &[&asked[..], &["--json"]].concat()).await;
    let json: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!((&json["version"], &json["name"]), (&1.into(), &"sku-42".into()));
    let holder = &json["holders"][0];
    assert_eq!(holder["token"], token.to_string());
    assert_eq!(holder["owner"], "6");
    assert_eq!(holder["process"], format!("{:032x}", process.0));
    assert_eq!((&holder["addr"], &holder["mode"]), (&addr.to_string().into(), &"lock".into()));
    assert!(holder["held_for"].is_f64(), "{said}");
    assert_eq!(json["waiters"][1]["mode"], "share");
    let owners = [&json["waiters"][0]["owner"], &json["waiters"][1]["owner"]];
    assert_eq!(owners, [&serde_json::json!("7"), &serde_json::Value::Null]);
    let seen = service.inspect("sku-42").await.expect("a grantor answers");
    assert_eq!((seen.holders[0].owner, seen.waiters[0].owner, seen.waiters[1].owner), (6, 7, 0));
    assert_eq!(code, Some(0));

    let (said, code) = elderlock(&member, &["held", "inventory"]).await;
    let names: Vec<&str> = said.lines().map(|line| line.split(" for ").next().unwrap()).collect();
    let [b, sku] = ["b of inventory is shared", "sku-42 of inventory is held"];
    assert_eq!((names, code), (vec![b, b, sku], Some(0)));
    let (said, _) = elderlock(&member, &["held", "inventory", "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    let names: Vec<_> = json["holds"].as_array().expect("a list").iter().collect();
    assert!(names.len() == 3 && names[2]["name"] == "sku-42", "{said}");
    drop((lock, shares, first, second));
}

/// A circle of two owners, in two members and two services. A third member, which uses neither
/// service, is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_owners_is_named_a_deadlock() {
    let (member, stock) = founded().await;
    let seed = member.addr().to_string();
    let join = || Member::builder("shop").bind("127.0.0.1:0").seeds([&seed]).timing(TIMING).join();
    let (other, asked) = (join().await.expect("it joins"), join().await.expect("it joins"));
    let orders = other.lock_service("orders").await.expect("a good name");
    let a = stock.lock("a").owner(1).await.expect("it is free");
    let b = orders.lock("b").owner(2).lease(HANG).await.expect("it is free");
    let there = member.lock_service("orders").await.expect("a good name");
    let first = there.lock("b").owner(1).start();
    let why = ["why", "--service", "inventory", "a"];
    let waits = async |service: &LockService, name: &str| {
        while service.inspect(name).await.expect("a grantor answers").waiters.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANG, waits(&orders, "b")).await.expect("it waits");
    let (said, code) = elderlock(&asked, &why).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), code), (5, Some(0)), "{said}");
    assert_eq!(lines[2], "its holders wait, too:");
    let (name, process) = (member.name(), member.process());
    let one = format!("  owner 1 of {name}, process {process} at {seed} waits for the lock");
    assert_eq!(lines[3], one + " b of orders");
    assert!(lines[4].starts_with("  b of orders is held for "), "{said}");
    assert!(lines[4].contains("; its lease ends in "), "{said}");

    let here = other.lock_service("inventory").await.expect("a good name");
    let last = here.lock("a").owner(2).start();
    tokio::time::timeout(HANG, waits(&stock, "a")).await.expect("it waits");
    let (said, code) = elderlock(&asked, &why).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), code), (7, Some(5)), "{said}");
    assert!(lines[6].starts_with("    a of inventory is held for "), "{said}");
    assert!(lines[6].ends_with(": deadlock"), "{said}");
    drop((first, last, a, b));
    for member in [asked, other] {
        member.leave().await.expect("it is heard");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_misspelt_service_is_reported_and_not_made() {
    let (member, service) = founded().await;
    service.lock("sku-42").await.expect("it is free").release().await.expect("it was held");
    for args in [
        &["why", "--service", "inventroy", "sku-42"][..],
        &["why", "--service", "inventroy", "--suspension", "--json"],
        &["held", "inventroy"],
        &["held", "inventroy", "--json"],
        &["revoke", "--service", "inventroy", "sku-42", "--force"],
    ] {
        let expected = "elderlock: there is no service inventroy: no member uses it\n";
        assert_eq!(elderlock(&member, args).await, (expected.to_owned(), Some(4)), "{args:?}");
    }
    let status = member.status();
    let names: Vec<&str> = status.services.iter().map(|service| service.service.as_str()).collect();
    assert_eq!(names, ["inventory"]);
    assert_eq!(member.service_exists("inventroy").await, Ok(false));
    assert_eq!(member.service_exists("inventory").await, Ok(true));
    assert!(matches!(
        member.service_exists("").await,
        Err(elderlock::ServiceExistsError::InvalidName(_))
    ));
    member.leave().await.expect("it is alone");
    let left = elderlock::ServiceExistsError::Unavailable(elderlock::Unavailable::Left);
    assert_eq!(member.service_exists("inventory").await, Err(left));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspension_is_requested_back_by_a_flag() {
    let (member, service) = founded().await;
    let suspended =
        service.suspend().revocable().reason("stock-taking").await.expect("no lock is held");
    let (said, code) =
        revoke(&member, &["--suspension", "--service", "inventory", "--wait", "0s", "--force"])
            .await;
    assert!(
        said.contains("(stock-taking) was told that the suspension of inventory is requested back"),
        "{said}"
    );
    assert_eq!(
        (code, suspended.fence().map_err(|lost| lost.reason)),
        (Some(0), Err(LostReason::Revoked)),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_cannot_be_revoked_is_reported_with_the_reason() {
    let (member, service) = founded().await;
    service.lock("a").await.expect("it is free").release().await.expect("it was held");
    assert_eq!(
        revoke(&member, &["--service", "inventory", "sku-42"]).await,
        ("no member holds sku-42 of inventory\n".to_owned(), Some(0))
    );
    let firm = service.lock("sku-42").await.expect("it is free");
    let (said, code) = revoke(&member, &["--service", "inventory", "sku-42", "--force"]).await;
    let expected = "is not revocable, and its member does not allow forced revokes: start it with \
                    --allow-forced-revokes";
    assert!(said.contains(expected), "{said}");
    assert_eq!((code, firm.fence()), (Some(1), Ok(firm.token())));
    let (said, code) = revoke(&member, &["--service", "inventory", "sku-42"]).await;
    assert!(said.contains("is not revocable; no holder was contacted"), "{said}");
    assert_eq!(code, Some(1));

    // No member answers at this port.
    let (said, code) = revoke_at("127.0.0.1:1", &["--service", "inventory", "sku-42"]).await;
    assert!(said.starts_with("elderlock: no member answers at 127.0.0.1:1"), "{said}");
    assert_eq!(code, Some(2));
}

/// Two holders have shares; the member of one of them allows forced revokes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_taken_away_by_force_only_from_a_member_that_allows_it() {
    let (member, service) = founded().await;
    let seed = member.addr().to_string();
    let other = Member::builder("shop").bind("127.0.0.1:0").seeds([&seed]).timing(TIMING);
    let other = other.forced_revokes(true).join().await.expect("it joins");
    let there = other.lock_service("inventory").await.expect("a good name");
    let firm = service.share("sku-42").await.expect("it is free");
    let taken = there.share("sku-42").await.expect("it is free");
    let mut events = other.events();
    let args =
        ["--service", "inventory", "sku-42", "--force", "--operator", "ann", "--why", "hangs"];
    let (said, code) = revoke(&member, &args).await;
    let lost =
        format!("{} at {} with token {} lost it", other.process(), other.addr(), taken.token());
    assert!(said.contains(&lost) && said.contains("--allow-forced-revokes"), "{said}");
    assert_eq!((code, firm.fence()), (Some(1), Ok(firm.token())));
    assert_eq!(taken.fence().map_err(|lost| lost.reason), Err(LostReason::Revoked));
    let told = async {
        loop {
            if let Some(MemberEvent::ForcedRevoke { name, token, by, operator, reason, .. }) =
                events.next().await
            {
                return (name, token, by, operator, reason);
            }
        }
    };
    let (name, token, by, operator, reason) =
        tokio::time::timeout(HANG, told).await.expect("it is told");
    assert_eq!((token, by), (taken.token(), member.process()));
    assert_eq!(name.expect("a lock").as_bytes(), b"sku-42");
    assert_eq!((operator.as_bytes(), reason.as_bytes()), (&b"ann"[..], &b"hangs"[..]));
    // The holder of the taken share was not told before.
    let lost = taken.fence().expect_err("it was taken away").to_string();
    assert_eq!(lost, "the lock is lost: it was revoked: a member or an operator took it away");
    other.leave().await.expect("it is heard");
}

/// The member that carries the order out is neither the grantor nor the holder. No member joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_adds_no_member_to_the_view() {
    let (member, service) = founded().await;
    let seed = member.addr().to_string();
    let other = Member::builder("shop").bind("127.0.0.1:0").seeds([&seed]).timing(TIMING);
    let other = other.join().await.expect("it joins");
    let guard = held(&service).await;
    // The promotion of the new member to a vote makes another view.
    let promoted = async {
        loop {
            if let Some(view) = other.status().view.filter(View::has_promoted_all) {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let view = tokio::time::timeout(HANG, promoted).await.expect("all members vote");
    let addrs = format!("127.0.0.1:1,{}", other.addr());
    let (said, code) =
        revoke_at(&addrs, &["--service", "inventory", "sku-42", "--wait", "0s", "--force"]).await;
    assert!(said.contains("lost it: taken away"), "{said}");
    assert_eq!(code, Some(0), "{said}");
    assert!(guard.fence().is_err());
    assert_eq!(other.status().view.map(|view| view.number), Some(view.number));
    assert_eq!(other.counters().orders, 1);
    other.leave().await.expect("it is heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_ends_before_its_wait_takes_nothing_away() {
    let (member, service) = founded().await;
    let guard = held(&service).await;
    let mut told = guard.revocation();
    let addr = member.addr().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    command.env_clear().args(["revoke", "--cluster", "shop", "--at", &addr]);
    // So long that the kill comes first.
    command.args(["--service", "inventory", "sku-42", "--wait", "10s", "--force"]);
    let mut child = command.spawn().expect("it can be started");
    tokio::time::timeout(HANG, told.requested()).await.expect("it is told").expect("it is held");
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(guard.fence(), Ok(guard.token()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_moves_a_member_leaves_and_nothing_is_forced_on_order() {
    let (member, service) = founded().await;
    let seed = member.addr().to_string();
    let other = Member::builder("shop").bind("127.0.0.1:0").seeds([&seed]).timing(TIMING);
    let other = other.join().await.expect("it joins");
    let guard = held(&service).await;
    let there = other.lock_service("inventory").await.expect("a good name");
    assert!(service.is_grantor() && !there.is_grantor());
    assert_eq!((service.grantor(), there.grantor()), (Some(member.process()), None));
    assert_eq!(there.is_held("sku-42").await, Ok(true));
    assert_eq!((there.is_held("sku-43").await, there.grantor()), (Ok(false), service.grantor()));
    let at = other.addr();
    let order = |words: &'static [&'static str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
        command.env_clear().args(words).args(["--cluster", "shop", "--at"]);
        command.arg(at.to_string());
        run(command)
    };
    assert_eq!(
        order(&["transfer", "inventory"]).await,
        (format!("member {} ({at}) is the grantor of inventory\n", other.name()), Some(0))
    );
    assert!(there.is_grantor() && guard.fence() == Ok(guard.token()));
    assert_eq!(there.grantor(), Some(other.process()));
    assert_eq!((service.is_held("sku-42").await, service.grantor()), (Ok(true), there.grantor()));
    // Any member accepts each form in which a list of members names this member.
    let (name, process) = (member.name().to_string(), member.process().to_string());
    let back = elderlock(&other, &["transfer", "inventory", "--to", &process]).await;
    assert_eq!(back, (format!("member {name} ({seed}) is the grantor of inventory\n"), Some(0)));
    assert!(service.is_grantor());
    let there_again = elderlock(&member, &["transfer", "inventory", "--to", &at.to_string()]).await;
    assert_eq!(there_again.1, Some(0), "{}", there_again.0);
    assert!(there.is_grantor() && guard.fence() == Ok(guard.token()));
    let (said, code) = elderlock(&member, &["transfer", "inventory", "--to", "pod-7"]).await;
    assert!(said.contains("no member is named pod-7") && said.contains(&name), "{said}");
    assert_eq!(code, Some(2));
    let (said, code) = elderlock(&member, &["transfer", "inventry"]).await;
    assert!(said.contains("there is no service inventry") && code == Some(4), "{said}");
    let (said, code) = elderlock(&member, &["transfer", "inventory", "--to", ""]).await;
    assert!(said.contains("names several members"), "{said}");
    assert_eq!(code, Some(2));
    let (said, code) = order(&["force"]).await;
    assert!(said.contains("there is nothing to force"), "{said}");
    assert_eq!(code, Some(2));
    let left = format!("member {} ({at}) has left\n", other.name());
    assert_eq!(order(&["leave"]).await, (left, Some(0)));
    assert_eq!(member.status().view.expect("it stays").members.len(), 1);
    assert_eq!(guard.fence(), Ok(guard.token()));
}
