//! A command on its way to the engine, and its answer.

use super::handle::ServiceHandle;
use crate::protocol::{Command, Outcome, RequestId};
use crate::runtime::engine::Answer;
use crate::runtime::hold_cell::HoldCell;
use crate::runtime::planted;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::task::coop::poll_proceed;

/// The number of free local locks that one busy-polled answer counts as: tokio lets a task have
/// 128 of those locks in a row.
const ATTENTION: usize = 8;

/// A command that was given to the core, and whose answer is outstanding or not yet taken.
pub(super) struct PendingAnswer {
    /// The handle of the service; `None` after the answer.
    service: Option<Arc<ServiceHandle>>,
    request: RequestId,
    /// The answer, once it is known.
    answer: Option<Answer>,
    /// Whether the thread has busy-polled for the answer.
    pub(super) busy_polled: bool,
}

impl PendingAnswer {
    /// Gives the command to the core. `waker`: that of the task, if it polls already.
    pub(super) fn new(
        service: Arc<ServiceHandle>,
        command: &mut Command,
        waker: Option<&Waker>,
    ) -> PendingAnswer {
        let (request, answer, reader) = service.engine.request(command, &service.destroyed, waker);
        // The value is made before the poll: a received packet may wake other tasks, whose code may
        // panic.
        let mut asked =
            PendingAnswer { service: Some(service), request, answer, busy_polled: false };
        // The answer may arrive sooner than this thread could sleep.
        if let (None, Some(waker), Some(reader), Some(service)) =
            (&asked.answer, waker, reader, &asked.service)
            && reader.busy_poll()
        {
            asked.answer = service.engine.poll(request, waker);
            asked.busy_polled = true;
        }
        asked
    }

    /// Returns the service and the number of the command, while it waits.
    pub(super) fn waiting(&self) -> Option<(&Arc<ServiceHandle>, RequestId)> {
        self.service
            .as_ref()
            .filter(|_| self.answer.is_none())
            .map(|service| (service, self.request))
    }

    /// The answer and its service.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Arc<ServiceHandle>, Answer)> {
        if let (None, Some(service)) = (&self.answer, &self.service) {
            self.answer = service.engine.poll(self.request, context.waker());
        }
        match (self.answer.take(), self.service.is_some()) {
            (None, true) => Poll::Pending,
            (Some(answer), true) => match self.service.take() {
                Some(service) => Poll::Ready((service, answer)),
                None => unreachable!("it is there"),
            },
            (_, false) => panic!("polled after it was ready"),
        }
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if let Some(service) = &self.service
            && !planted!(KeepDroppedRequest)
        {
            service.engine.release_request(self.request, service.engine.now());
        }
    }
}

/// A command that is given to the core when it is first polled.
pub(super) struct CommandFuture(CommandState);

enum CommandState {
    Unasked(Arc<ServiceHandle>, Command),
    Asked(PendingAnswer),
    Over,
}

impl CommandFuture {
    pub(super) fn new(
        service: Arc<ServiceHandle>,
        command: impl FnOnce(RequestId) -> Command,
    ) -> Self {
        CommandFuture(CommandState::Unasked(service, command(RequestId(0))))
    }
}

impl Future for CommandFuture {
    type Output = Result<Arc<HoldCell>, Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A command uses tokio's budget as a request does.
        let turn = std::task::ready!(poll_proceed(context));
        if let CommandState::Unasked(..) = self.0
            && let CommandState::Unasked(service, mut command) =
                std::mem::replace(&mut self.0, CommandState::Over)
        {
            let asked = PendingAnswer::new(service, &mut command, Some(context.waker()));
            let is_waiting = asked.waiting().is_some();
            self.0 = CommandState::Asked(asked);
            if is_waiting {
                return Poll::Pending;
            }
        }
        let CommandState::Asked(asked) = &mut self.0 else { panic!("polled after it was ready") };
        let answer = std::task::ready!(asked.poll(context)).1;
        turn.made_progress();
        // Each command takes a step of the core. A task that makes nothing else, at the member that
        // grants, would have the thread for a hundred of them. Other members' packets would wait.
        spend(context);
        Poll::Ready(answer.map_err(|outcome| *outcome))
    }
}

/// Shortens the task's turn, because the thread has waited for this answer: see
/// [`busy_poll`](super::MemberBuilder::busy_poll).
pub(super) fn spend(context: &mut Context<'_>) {
    for _ in 1..ATTENTION {
        match poll_proceed(context) {
            Poll::Ready(turn) => turn.made_progress(),
            Poll::Pending => return,
        }
    }
}
