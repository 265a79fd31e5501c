//! Tasks of one thread, in an order that the seed chooses.
//!
//! tokio provides only the time. It is paused, so that it jumps to the next timer when no task has
//! anything to do. The order of tokio's wake-ups depends on its own random numbers. So each woken
//! task is put into a set, and the set is polled in an order drawn from the seed. Tasks belong to
//! the site of their member's process. A site can be frozen, like a stopped process, and ended,
//! like a killed one.

use super::chance::mix;
use elderlock::simulated::paced;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The handle that begins tasks, also from within tasks.
#[derive(Clone)]
pub struct Tasks {
    orders: Rc<RefCell<Vec<Order>>>,
    bell: Arc<TaskWakeSet>,
}

enum Order {
    Begin(Option<usize>, Task),
    End(usize),
    Freeze(usize),
    Thaw(usize),
    Close,
}

/// The woken tasks.
#[derive(Default)]
struct TaskWakeSet {
    woken: Mutex<BTreeSet<u64>>,
    driver: Mutex<Option<Waker>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TaskWakeSet {
    fn ring(&self) {
        let driver = lock(&self.driver).clone();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

struct TaskWaker {
    task: u64,
    bell: Arc<TaskWakeSet>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.bell.woken).insert(self.task);
        self.bell.ring();
    }
}

impl Tasks {
    /// A set without tasks, and its driver. `clocks` has the error of each site's clock in
    /// millionths; positive if it is too fast.
    pub fn new(seed: u64, clocks: Vec<i32>) -> (Tasks, TaskDriver) {
        let tasks = Tasks { orders: Rc::default(), bell: Arc::default() };
        let driver = TaskDriver {
            orders: tasks.orders.clone(),
            bell: tasks.bell.clone(),
            tasks: BTreeMap::new(),
            frozen: BTreeMap::new(),
            next: 0,
            seed,
            clocks,
            rounds: 0,
            closed: false,
        };
        (tasks, driver)
    }

    fn order(&self, order: Order) {
        self.orders.borrow_mut().push(order);
        self.bell.ring();
    }

    /// Begins a task; a task of a site ends with the site.
    pub fn begin(&self, site: Option<usize>, task: impl Future<Output = ()> + 'static) {
        self.order(Order::Begin(site, Box::pin(task)));
    }

    /// Ends all tasks of a site at once.
    pub fn end(&self, site: usize) {
        self.order(Order::End(site));
    }

    /// Stops all tasks of the site until it is thawed.
    pub fn freeze(&self, site: usize) {
        self.order(Order::Freeze(site));
    }

    /// Resumes the tasks of the site.
    pub fn thaw(&self, site: usize) {
        self.order(Order::Thaw(site));
    }

    /// Ends all tasks.
    pub fn close(&self) {
        self.order(Order::Close);
    }
}

/// Polls the tasks until they are closed.
pub struct TaskDriver {
    orders: Rc<RefCell<Vec<Order>>>,
    bell: Arc<TaskWakeSet>,
    tasks: BTreeMap<u64, (Option<usize>, Task)>,
    /// The tasks that were woken while their site was frozen, by site.
    frozen: BTreeMap<usize, BTreeSet<u64>>,
    next: u64,
    seed: u64,
    clocks: Vec<i32>,
    rounds: u64,
    closed: bool,
}

impl TaskDriver {
    /// The error of the clock of a task's site, in millionths.
    fn clock(&self, site: Option<usize>) -> i32 {
        site.and_then(|site| self.clocks.get(site)).copied().unwrap_or_default()
    }

    fn obey(&mut self) {
        loop {
            let orders = std::mem::take(&mut *self.orders.borrow_mut());
            if orders.is_empty() {
                return;
            }
            for order in orders {
                match order {
                    Order::Begin(site, task) => {
                        self.next += 1;
                        let task = paced(self.clock(site), task);
                        self.tasks.insert(self.next, (site, Box::pin(task)));
                        lock(&self.bell.woken).insert(self.next);
                    }
                    Order::End(site) => {
                        self.frozen.remove(&site);
                        self.tasks.retain(|_, (at, _)| *at != Some(site));
                    }
                    Order::Freeze(site) => {
                        self.frozen.entry(site).or_default();
                    }
                    Order::Thaw(site) => {
                        let woken = self.frozen.remove(&site).unwrap_or_default();
                        lock(&self.bell.woken).extend(woken);
                    }
                    Order::Close => self.closed = true,
                }
            }
        }
    }
}

impl Future for TaskDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        *lock(&this.bell.driver) = Some(context.waker().clone());
        this.obey();
        this.rounds += 1;
        let mut round: Vec<u64> =
            std::mem::take(&mut *lock(&this.bell.woken)).into_iter().collect();
        round.sort_by_key(|task| mix(&[this.seed, this.rounds, *task]));
        for id in round {
            // The task may have ended since it was woken.
            let Some((site, mut task)) = this.tasks.remove(&id) else { continue };
            if let Some(woken) = site.and_then(|site| this.frozen.get_mut(&site)) {
                woken.insert(id);
                this.tasks.insert(id, (site, task));
                continue;
            }
            let waker = Waker::from(Arc::new(TaskWaker { task: id, bell: this.bell.clone() }));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                this.tasks.insert(id, (site, task));
            }
            this.obey();
            if this.closed {
                this.tasks.clear();
                return Poll::Ready(());
            }
        }
        // There is only one round in each poll. tokio counts the work of a poll, and after too much
        // work its parts return pending.
        if !lock(&this.bell.woken).is_empty() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
