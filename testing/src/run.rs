//! A run: a runtime, a simulation, the members and the test.

use crate::cluster::{Cluster, ClusterState};
use crate::fault_plan::FaultPlan;
use crate::run_record::RecordedRun;
use crate::simulation::sites::JOIN_LIMIT;
use crate::simulation::tasks::Tasks;
use crate::story::Story;
use elderlock::Timing;
use elderlock::simulated::Simulation;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A run before it begins.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub(crate) members: usize,
    pub(crate) timing: Timing,
    pub(crate) seed: u64,
    /// The seed of the delays of packets and of the order of tasks.
    pub(crate) luck: u64,
    /// The longest time of the run by its own clock.
    pub(crate) limit: Duration,
    /// The faults that were drawn for the run.
    pub(crate) chaos: Option<FaultPlan>,
    /// Whether the run is recorded. A record changes nothing else.
    pub(crate) is_recorded: bool,
}

/// The end of a run.
pub(crate) enum Ending<T> {
    /// The test returned its output.
    Returned(T),
    /// The test returned an error, with this text.
    Failed(String),
    /// Faults have cost the cluster its quorum for good, so the test cannot end.
    WithoutQuorum,
    /// The test panicked, with this message and payload.
    Panicked(String, Box<dyn Any + Send>),
}

/// A run that is over.
pub(crate) struct Run<T> {
    pub(crate) ending: Ending<T>,
    pub(crate) story: String,
    pub(crate) digest: u64,
    /// The record, if one was wanted.
    pub(crate) record: Option<RecordedRun>,
}

pub(crate) fn run<T, F>(plan: &RunPlan, test: impl FnOnce(Cluster) -> F) -> Run<T>
where
    F: Future<Output = T> + 'static,
    T: 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing of the system");
    runtime.block_on(async {
        // The simulation outlives everything that reads the time.
        let simulation = Simulation::new(plan.luck);
        let story = Rc::new(Story::new(plan.luck));
        let (tasks, driver) = Tasks::new(plan.luck, vec![0; plan.members]);
        let state = ClusterState::new(plan, story.clone(), tasks.clone());
        if plan.is_recorded {
            story.begin_record(plan.members);
            simulation.observe_holds(state.hold_observer());
        }
        let output = Rc::new(RefCell::new(None));
        let has_begun = Rc::new(Cell::new(false));
        tasks.begin(None, {
            let (state, has_begun) = (state.clone(), has_begun.clone());
            async move {
                state.begin();
                if !state.sites.all_joined().await {
                    let why = format!("the members have not found each other in {JOIN_LIMIT:?}");
                    return state.fail(why);
                }
                state.begin_chaos();
                has_begun.set(true);
            }
        });
        tasks.begin(None, {
            let (state, limit) = (state.clone(), plan.limit);
            async move {
                tokio::time::sleep(limit).await;
                state.fail(format!("the test still runs after {limit:?} of simulated time"));
            }
        });
        let mut test = Some(test);
        let mut driver = Box::pin(driver);
        let mut drive = |context: &mut Context<'_>| {
            let polled = driver.as_mut().poll(context);
            if has_begun.get()
                && let Some(test) = test.take()
            {
                let body = test(Cluster(state.clone()));
                let (tasks, output, story) = (tasks.clone(), output.clone(), story.clone());
                state.tasks.begin(None, async move {
                    let came = body.await;
                    *output.borrow_mut() = Some(came);
                    story.end_record();
                    tasks.close();
                });
            }
            polled
        };
        // The panic is caught here and not around the runtime: guards that are dropped after a
        // panic read the time.
        let panic = poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| drive(context))) {
            Ok(polled) => polled.map(|()| None),
            Err(panic) => Poll::Ready(Some(panic)),
        })
        .await;
        if let Some(panic) = &panic {
            story.add(&format!("FAILED: {}", message(panic.as_ref())));
        }
        story.close();
        let record = story.take_record();
        drop(driver);
        state.end();
        let came = output.borrow_mut().take();
        let ending = match (panic, came, story.failure()) {
            (Some(panic), ..) => Ending::Panicked(message(panic.as_ref()), panic),
            (None, _, Some(why)) => Ending::Failed(why),
            (None, Some(output), None) => Ending::Returned(output),
            (None, None, None) if state.without_quorum.get() => Ending::WithoutQuorum,
            (None, None, None) => Ending::Failed("the test has not ended".to_owned()),
        };
        Run { ending, story: story.text(), digest: story.digest(), record }
    })
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
