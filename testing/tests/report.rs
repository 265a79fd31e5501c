//! The page of a failure: its content, and the file to which it is written.

#[path = "support/browser.rs"]
mod browser;

use browser::browser;
use elderlock::{LockService, Member};
use elderlock_testing::{ChaosFailure, Cluster, chaos};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A name that contains markup.
const NAME: &str = "<b>sku</b>&\"42\"";

/// A folder of this process, since several processes may run these tests. It is removed at the end
/// of a test that passes.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("{name}-{}", std::process::id());
        let folder = Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        // A killed process with this number may have left its own.
        folder.remove();
        folder
    }

    /// Removes the folder, or the file in its place.
    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_file(&self.0);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.remove();
        }
    }
}

fn read(failure: &ChaosFailure) -> String {
    fs::read_to_string(failure.report().expect("a report")).expect("its file")
}

/// A sale that believes its guard, and writes without a fence.
async fn sell(stock: &LockService, pieces: &Cell<u32>) -> Option<()> {
    let guard = stock.lock(NAME).await.ok()?;
    let left = pieces.get();
    sleep(Duration::from_millis(200)).await;
    guard.fence().ok()?;
    sleep(Duration::from_millis(100)).await;
    pieces.set(left - 1);
    Some(())
}

async fn sales(member: Member, pieces: Rc<Cell<u32>>, sold: Rc<Cell<u32>>) {
    loop {
        if let Ok(stock) = member.lock_service("inventory").await
            && sell(&stock, &pieces).await.is_some()
        {
            sold.set(sold.get() + 1);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// A shop without a fence: a process that stops between its check and its write sells twice.
async fn shop(cluster: Cluster) -> Result<(), String> {
    let (pieces, sold) = (Rc::new(Cell::new(1_000)), Rc::new(Cell::new(0)));
    cluster.run_on_each({
        let (pieces, sold) = (pieces.clone(), sold.clone());
        move |_, member| sales(member, pieces.clone(), sold.clone())
    });
    cluster.note("the <shop> opens");
    cluster.healed().await;
    let all = pieces.get() + sold.get();
    if all == 1_000 { Ok(()) } else { Err(format!("<{all}> pieces were there")) }
}

#[test]
fn the_report_of_an_unfenced_shop_names_seed_faults_holds_and_reason() {
    let folder = Folder::new("shop");
    let failure = chaos(|cluster, _| shop(cluster)).report_folder(&folder.0).search();
    let failure = failure.expect("one seed sells a piece twice");
    let page = read(&failure);
    let command = failure.to_string();
    let command = command.lines().find_map(|line| line.strip_prefix("Again: ")).expect("a command");
    let [fault] = *failure.faults() else { panic!("one stop is enough: {failure}") };
    let first = format!("<title>seed {} failed: &lt;", failure.seed());
    let fault = format!("fault {fault}: stop, m");
    for part in [
        first.as_str(),
        command,
        "<span class=\"bad\">Failed:</span> &lt;",
        "pieces were there",
        "Faults that it takes",
        "stop of member",
        &fault,
        "class=\"paused\"",
        "stopped",
        "goes on",
        "joined",
        "is the elder",
        "grants inventory",
        "lost: suspended",
        "; its lease is over",
        "released at ",
        "inventory/&lt;b&gt;sku&lt;/b&gt;",
        "the &lt;shop&gt; opens",
        "all faults end",
        "the run fails",
    ] {
        assert!(page.contains(part), "{part} is not in {}", failure.report().unwrap().display());
    }
    for markup in ["<b>sku", "<shop>"] {
        assert!(!page.contains(markup), "{markup} is not escaped");
    }
    for outside in ["http://", "https://", " src=", "<link rel=\"stylesheet"] {
        assert!(!page.contains(outside), "the page wants {outside}");
    }
}

/// The page shows each life, each fault of the test and the panic.
#[test]
fn the_report_shows_crashes_restarts_and_the_faults_of_the_test() {
    let folder = Folder::new("lives");
    let failure = chaos(|cluster, _| async move {
        cluster.healed().await;
        cluster.crash(1);
        cluster.cut(0, 2);
        sleep(Duration::from_secs(1)).await;
        cluster.heal();
        cluster.restart(1);
        cluster.joined(1).await;
        assert_eq!(cluster.size(), 4, "one\nmember <is> missing");
    })
    .report_folder(&folder.0)
    .seeds(1)
    .search()
    .expect("it always fails");
    let page = read(&failure);
    for part in [
        "killed",
        "starts again",
        "<title>cut, m0 m2</title>",
        "None: the programs alone are enough.",
        "that were taken out",
        "member &lt;is&gt; missing",
        "at testing/tests/report.rs:",
    ] {
        assert!(page.contains(part), "{part} is not in {}", failure.report().unwrap().display());
    }
}

/// The value that the page has measured of itself, in a window of this width.
fn measured(browser: &Path, page: &Path, width: u32) -> impl Fn(&str) -> String {
    let profile = Folder::new(&format!("browser-{width}"));
    let run = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--user-data-dir={}", profile.0.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    let shown = String::from_utf8_lossy(&run.stdout).into_owned();
    move |name| {
        let start = format!("data-{name}=\"");
        let (_, rest) = shown.split_once(&start).unwrap_or_else(|| panic!("no {name}: {shown}"));
        rest.split('"').next().unwrap_or_default().to_owned()
    }
}

/// A test that fails after two restarts and a stop. It notes more lines than there is room for.
async fn eventful(cluster: Cluster) -> Result<(), String> {
    let (starts, stops) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    cluster.run_on_each({
        let (starts, stops, notes) = (starts.clone(), stops.clone(), cluster.clone());
        move |number, _| {
            starts.set(starts.get() + 1);
            let (stops, notes) = (stops.clone(), notes.clone());
            async move {
                loop {
                    let slept = Instant::now();
                    sleep(Duration::from_millis(700)).await;
                    stops.set(stops.get() + u32::from(slept.elapsed() > Duration::from_secs(2)));
                    notes.note(format!("{number} writes a line that is much longer than a label"));
                }
            }
        }
    });
    let size = cluster.size();
    shop(cluster).await?;
    if starts.get() < size + 2 || stops.get() == 0 { Ok(()) } else { Err("eventful".to_owned()) }
}

#[test]
fn the_report_has_no_label_over_another_in_a_wide_and_a_narrow_window() {
    let Some(browser) = browser() else { return };
    let folder = Folder::new("eventful");
    let failure = chaos(|cluster, _| eventful(cluster)).report_folder(&folder.0);
    let failure = failure.members(5).search().expect("an eventful seed");
    assert!(failure.faults().len() >= 3, "{failure}");
    let page = failure.report().expect("a report");
    for width in [1200, 500] {
        let measured = measured(&browser, page, width);
        assert!(measured("labels").parse::<u32>().is_ok_and(|labels| labels >= 20));
        let found = ["covered", "errors", "overflow"].map(&measured);
        assert_eq!(found, ["0", "0", "0"], "{}: {}", page.display(), measured("which"));
    }
}

/// A recorded run is equal to the run without a record.
#[test]
fn a_reported_run_is_the_run_that_failed() {
    let folder = Folder::new("again");
    let search = || {
        chaos(|cluster, _| async move {
            let digest = cluster.clone();
            let outcome = shop(cluster).await;
            outcome.map_err(|why| format!("{why}, digest {}", digest.digest()))
        })
        .report_folder(&folder.0)
        .search()
        .expect("one seed sells a piece twice")
    };
    let failure = search();
    assert!(failure.repeats(), "{failure}");
    assert_eq!(failure.to_string(), search().to_string());
}

#[test]
fn a_report_that_cannot_be_written_is_named_beside_the_failure() {
    let file = Folder::new("a-file");
    fs::write(&file.0, "").expect("a file");
    let failure = chaos(|_, _| async { Err::<(), _>("always") })
        .report_folder(&file.0)
        .seeds(1)
        .search()
        .expect("it always fails");
    assert_eq!(failure.report(), None);
    let text = failure.to_string();
    assert!(text.contains("always") && text.contains("\nNo report: "), "{text}");
}

/// The next test runs this test, with variables.
#[test]
fn report_probe() {
    if std::env::var_os("ELDERLOCK_TESTING_PROBE").is_some() {
        chaos(|_, _| async { Err::<(), _>("always") }).seeds(1).run();
    }
}

#[test]
fn a_failure_prints_the_path_of_its_report_and_the_environment_chooses_it() {
    let probe = |reports: Option<&Path>| {
        let this = std::env::current_exe().expect("this program");
        let mut probe = Command::new(this);
        probe.args(["report_probe", "--exact", "--nocapture", "--test-threads=1"]);
        probe.env("ELDERLOCK_TESTING_PROBE", "1");
        probe.env_remove("ELDERLOCK_TESTING_REPORTS");
        if let Some(reports) = reports {
            probe.env("ELDERLOCK_TESTING_REPORTS", reports);
        }
        let run = probe.output().expect("it runs again");
        assert!(!run.status.success());
        let text = String::from_utf8_lossy(&run.stderr).into_owned();
        text.lines().find_map(|line| line.strip_prefix("Report: ")).map(PathBuf::from)
    };
    let chosen = Folder::new("chosen");
    let file = "report-report_probe-1.html";
    assert_eq!(probe(Some(&chosen.0)), Some(chosen.0.join(file)));
    assert!(chosen.0.join(file).is_file());
    assert_eq!(probe(Some(Path::new("none"))), None);
    let usual = probe(None).expect("a report");
    assert!(usual.ends_with(Path::new("elderlock-testing").join(file)) && usual.is_file());
}
