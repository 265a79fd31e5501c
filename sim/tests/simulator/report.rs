//! The pages of the report, opened in a real browser: no error, nothing fetched, and no label over
//! another.
//!
//! The page measures its labels itself and leaves the figures as attributes of its root
//! (`testing/src/drawing/page.js`).

#[path = "../../../testing/tests/support/browser.rs"]
mod browser;

use browser::browser;
use elderlock_sim::World;
use elderlock_sim::chance::Rng;
use elderlock_sim::chaos::{ChaosPlan, Summary, run_seed};
use elderlock_sim::record::{Entry, Line, Record, RecordedRequest};
use elderlock_sim::report::{BatchReport, Case, Gallery, ReportedFault, of_batch, of_run};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;

/// The browser's report of a page.
#[derive(Debug)]
struct PageReport {
    labels: u64,
    covered: u64,
    which: String,
    errors: u64,
    overflow: u64,
    console: Vec<String>,
    /// Kept for as long as the report is looked at.
    _folder: PageFolder,
}

/// The folder of a page, which is removed unless the test fails.
#[derive(Debug)]
struct PageFolder(PathBuf);

impl Drop for PageFolder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Opens a page. `name` is that of its file.
fn open(browser: &PathBuf, name: &str, page: &str, width: u32) -> PageReport {
    // Several processes may run these tests.
    let room = format!("{name}-{width}-{}", std::process::id());
    let room = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(room);
    std::fs::create_dir_all(&room).expect("a folder for the page");
    let folder = PageFolder(room.clone());
    let (file, dom, log) = (room.join("page.html"), room.join("dom.html"), room.join("log.txt"));
    std::fs::write(&file, page).expect("the page is written");
    let started = Instant::now();
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--user-data-dir={}", room.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(File::create(&dom).expect("a file for the page as it is shown"))
        .stderr(File::create(&log).expect("a file for what the browser says"))
        .spawn()
        .expect("the browser starts");
    while child.try_wait().expect("the browser can be asked").is_none() {
        if started.elapsed() > Duration::from_secs(600) {
            _ = child.kill();
            panic!("the browser did not show {name} in ten minutes");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let dom = std::fs::read_to_string(&dom).expect("the page as it is shown");
    let log =
        String::from_utf8_lossy(&std::fs::read(&log).expect("the browser's output")).into_owned();
    let root = dom
        .split_once("<html")
        .and_then(|(_, rest)| rest.split_once('>'))
        .map_or("", |(root, _)| root);
    let text = |name: &str| {
        let (_, rest) = root
            .split_once(&format!("data-{name}=\""))
            .unwrap_or_else(|| panic!("no {name} in {root:?}"));
        rest.split('"').next().unwrap_or_default().to_string()
    };
    let number = |name: &str| text(name).parse().expect("a number");
    PageReport {
        labels: number("labels"),
        covered: number("covered"),
        which: text("which"),
        errors: number("errors"),
        overflow: number("overflow"),
        console: log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_string).collect(),
        _folder: folder,
    }
}

#[track_caller]
fn assert_well(browser: &PathBuf, name: &str, page: &str, width: u32) {
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "{name} wants something from outside"
    );
    let seen = open(browser, name, page, width);
    assert!(seen.labels >= 5, "{name}: {seen:?}");
    assert_eq!(
        (seen.covered, seen.errors, seen.overflow),
        (0, 0, 0),
        "{name} at {width}: {seen:?}"
    );
    assert_eq!(seen.console, [""; 0], "{name}");
}

/// A run that no World would make, but a record can: everything at once, and names that are markup.
fn wild_record(seed: u64) -> Record {
    let mut rng = Rng::new(seed, 9);
    let members = rng.between(2, 7) as usize;
    let mut lines: Vec<Line> = (0..members).map(|site| line(0, Some(site), Entry::Start)).collect();
    let (mut at, mut packet) = (0, 0);
    let mut open: Vec<(usize, usize)> = Vec::new();
    for call in 0..rng.between(20, 400) as usize {
        let longest = rng.between(1, 60) * MS;
        at += rng.below(longest);
        let site = rng.below(members as u64) as usize;
        let other = rng.below(members as u64) as usize;
        let service = rng.pick(&["stock", "till", "<b>&amp;\"quoted\"</b>"]).to_string();
        let entry = match rng.below(14) {
            0..3 => {
                open.push((call, site));
                let name = rng.pick(&["a", "b", "a name of some length"]).to_string();
                let names = vec![name];
                let request_kind = RecordedRequest::Lock;
                let asks = Entry::Invoke {
                    call,
                    service,
                    request_kind,
                    names,
                    permits: 0,
                    of: None,
                    owner: 0,
                    wait: None,
                    lease: None,
                };
                lines.push(line(at, Some(site), asks));
                at += rng.below(40 * MS);
                Entry::Ok {
                    call,
                    token: (1_000 << 32) + call as u64,
                    until: Some(at + rng.below(900 * MS)),
                    from_keep: false,
                }
            }
            3 if !open.is_empty() => {
                let (call, site) = open.swap_remove(rng.below(open.len() as u64) as usize);
                lines.push(line(at, Some(site), Entry::Release { call }));
                continue;
            }
            4 => Entry::Pause,
            5 => Entry::Wake,
            6 => Entry::End { how: "killed".into() },
            7 => Entry::Start,
            8 => Entry::Grantor { service, epoch: call as u64, recovering: rng.chance(500_000) },
            9 => Entry::NoGrantor { service, epoch: call as u64 },
            10 => Entry::Event {
                name: rng.pick(&["became_elder", "suspended", "resumed", "expelled"]).to_string(),
            },
            11 => {
                let (members, ghosts) = ((0..members).collect(), vec![(other, 1)]);
                Entry::View {
                    number: call as u64,
                    slots: (call as u64, 1),
                    members,
                    lives: Vec::new(),
                    ghosts,
                    learners: Vec::new(),
                    founder: (0, 1),
                }
            }
            12 => {
                Entry::Fault { fault: call, kind: "isolate <all>".into(), sites: vec![site, other] }
            }
            _ => {
                packet += 1;
                let kind = rng.pick(&["Grant", "Recover", "Report", "Beat"]).to_string();
                let lost = rng.chance(200_000).then(|| "cut".to_string());
                let arrives = lost.is_none();
                lines.push(line(at, Some(site), Entry::Send { packet, to: other, kind, lost }));
                if !arrives {
                    continue;
                }
                at += rng.below(5 * MS);
                lines.push(line(at, Some(other), Entry::Arrive { packet }));
                continue;
            }
        };
        lines.push(line(at, Some(site), entry));
    }
    let lock = rng.chance(700_000).then(|| "stock/a".to_string());
    let words = "<script>missing()</script> holds stock/a".to_string();
    lines.push(line(
        at,
        Some(0),
        Entry::Break { invariant: "exclusive_by_lease".into(), lock, words },
    ));
    Record { lines }
}

fn line(at: u64, site: Option<usize>, entry: Entry) -> Line {
    Line { at, site, life: 1, entry }
}

fn wild_page(seed: u64) -> String {
    let told = |number: usize| ReportedFault {
        number,
        at: MS,
        lasts: 7 * MS,
        words: "a <cut>".into(),
        needed: number < 2,
    };
    of_run(&Case {
        record: wild_record(seed),
        source: format!("seed {seed}"),
        setting: "wild".into(),
        faults: (0..5).map(told).collect(),
        replay: Some("elderlock-sim report --seed 1 --faults 1,2".into()),
        ..Case::default()
    })
}

#[test]
fn pages_of_wild_runs_show_no_label_over_another() {
    let Some(browser) = browser() else { return };
    for seed in 1..=6 {
        assert_well(&browser, &format!("wild-{seed}"), &wild_page(seed), 1280);
    }
}

#[test]
fn the_pages_of_a_run_and_of_a_batch_are_well_at_two_widths() {
    let Some(browser) = browser() else { return };
    let (mut total, mut gallery) = (Summary::default(), Gallery::default());
    for seed in 1..=4 {
        let plan = ChaosPlan::draw(seed, (3, 7));
        let run = run_seed(&plan, |world| world);
        total.add(&run);
        gallery.add(&plan, &run);
    }
    let record = run_seed(&ChaosPlan::draw(2, (3, 7)), World::with_messages).world.into_record();
    let run = of_run(&Case { record: record.clone(), source: "seed 2".into(), ..Case::default() });
    let picture = Some(("seed 2".to_string(), record));
    let batch = of_batch(&BatchReport {
        total: &total,
        gallery: &gallery,
        from: 1,
        members: (3, 7),
        picture,
    });
    for width in [1280, 500] {
        assert_well(&browser, "run", &run, width);
        assert_well(&browser, "batch", &batch, width);
    }
}

/// The browser reports covered labels, wide pages and errors: without that, the two tests above
/// would show nothing.
#[test]
fn labels_over_another_and_errors_are_seen() {
    let Some(browser) = browser() else { return };
    let page = wild_page(1);
    let large = page.replace("</style>", "text { font-size: 40px !important; }</style>");
    let seen = open(&browser, "large", &large, 1280);
    assert!(seen.covered > 0 && !seen.which.is_empty(), "{seen:?}");
    let wide = page.replace("<body>", "<body><div style=\"width: 3000px\">wide</div>");
    assert!(open(&browser, "wide", &wide, 1280).overflow > 0);
    let wrong = page.replace("measure();\n</script>", "measure();\nmissing();\n</script>");
    assert_ne!(page, wrong);
    let seen = open(&browser, "wrong", &wrong, 1280);
    assert!(
        seen.errors > 0 && seen.console.iter().any(|line| line.contains("missing")),
        "{seen:?}"
    );
}
