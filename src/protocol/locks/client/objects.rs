//! Objects: a member has an object while a request has it open, or waits for that. Its content
//! stays good while this member is suspended: it is not a hold, and no other member gets it
//! meanwhile. Of several writes into one object only one is on its way at a time. So the next
//! grantor can tell whether it was made.

use super::*;

impl LockClient {
    /// Writes into an object, for the application.
    pub(crate) fn write(
        &mut self,
        (request, open): (RequestId, RequestId),
        edit: Edit,
        crowded: impl Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        let service = self.service_of(open).cloned();
        let name = match self.request_mut(open) {
            Some(ClientRequest {
                want: Want::Open(opening),
                state: ClientRequestState::Held { .. },
                ..
            }) => Some(opening.name().clone()),
            _ => None,
        };
        let (Some(service), Some(name)) = (service, name) else {
            cx.out.push(Output::Answer { request, outcome: Outcome::NotOpen });
            return;
        };
        let grantor = self.states.get(&service).and_then(|state| state.grantor);
        if self.is_full() || grantor.is_some_and(|(process, _)| crowded(process)) {
            cx.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        let what = CallKind::Write(name.clone(), edit, None);
        self.run_call((request, service.clone()), what, Time::MAX, Time::MAX);
        if let Some(object) = self.object_mut(&service, &name) {
            object.writes.insert(request);
        }
        self.write_next(&service, &name, cx);
    }

    /// Sends the next write into an object, if none is on its way.
    pub(super) fn write_next(
        &mut self,
        service: &ServiceName,
        name: &LockName,
        cx: &mut StepContext,
    ) {
        let Some(object) = self.object_mut(service, name).filter(|object| object.writing.is_none())
        else {
            return;
        };
        object.writing = object.writes.pop_first();
        if let Some(request) = object.writing {
            self.pursue(service, Some(request), cx);
        }
    }

    pub(super) fn object_mut(
        &mut self,
        service: &ServiceName,
        name: &LockName,
    ) -> Option<&mut OpenObject> {
        self.states.get_mut(service)?.objects.get_mut(name)
    }

    /// Takes an object's content from the grantor, perhaps with the answer to a request of this
    /// member. Either both are taken or neither. So a caller that gets the answer to its write
    /// never sees an older value afterwards.
    pub(crate) fn on_value(
        &mut self,
        from: ProcessId,
        (service, epoch): (&ServiceName, Epoch),
        (name, content): (&LockName, Content),
        answers: Option<(RequestId, ObjectReply)>,
        cx: &mut StepContext,
    ) {
        if self.newest(service).is_some_and(|newest| newest > epoch) {
            return; // a newer grantor knows this member's content, and sends the rest
        }
        if !self.is_of_grantor(from, service, epoch, cx) || !can_be_sent(&content, answers, cx) {
            return;
        }
        if let Some((request, ObjectReply::Opened(token))) = answers {
            match self.request_mut(request) {
                None => {
                    cx.send(from, GrantorMessage::Release { service: service.clone(), request })
                }
                Some(ClientRequest {
                    state: ClientRequestState::Held { .. } | ClientRequestState::Won(..),
                    ..
                }) => {}
                Some(entry) => entry.state = ClientRequestState::Won(token, cx.now),
            }
        }
        let Some(state) = self.states.get_mut(service) else { return };
        let Some(object) = state.objects.get_mut(name) else { return };
        let is_answer = matches!(answers, Some((_, ObjectReply::Written { .. })));
        if object
            .content
            .as_ref()
            .is_none_or(|known| known.version <= content.version && *known != content)
            && !(is_answer && planted!(cx.mutant, AnswerWithoutValue))
        {
            for &request in &object.opens {
                touch();
                if state
                    .requests
                    .get(&request)
                    .is_some_and(|entry| matches!(entry.state, ClientRequestState::Held { .. }))
                {
                    cx.out.push(Output::Value { request, content: content.clone() });
                }
            }
            object.content = Some(content.clone());
        }
        match answers {
            Some((request, ObjectReply::Opened(_))) => self.accept(request, cx),
            Some((request, ObjectReply::Written { version, number })) => {
                self.on_written(request, Outcome::Written { version, number }, cx);
            }
            Some((request, ObjectReply::Unwritten)) => {
                self.on_written(request, Outcome::Unwritten(content), cx)
            }
            None => {}
        }
    }

    pub(super) fn on_written(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        cx: &mut StepContext,
    ) {
        let Some(service) = self.service_of(request).cloned() else { return };
        if let Some(PendingCall { kind: CallKind::Write(name, ..), .. }) = self.drop_call(request) {
            cx.out.push(Output::Answer { request, outcome });
            self.write_next(&service, &name, cx);
        }
    }

    /// Handles the end of an opening. Without another granted one, no pending write into the object
    /// is sent again: the next grantor may not know the write. Without any other opening, requests
    /// for permits of the object would wait for ever, so they end.
    pub(super) fn shut(
        &mut self,
        service: &ServiceName,
        entry: &ClientRequest,
        cx: &mut StepContext,
    ) {
        let Want::Open(opening) = &entry.want else { return };
        let name = opening.name();
        let Some(state) = self.states.get_mut(service) else { return };
        let Some(object) = state.objects.get(name) else { return };
        if object.granted > 0 {
            return;
        }
        let writes: Vec<RequestId> = object.writing.iter().chain(&object.writes).copied().collect();
        if object.opens.is_empty() {
            state.objects.remove(name);
            let of_name = state
                .permits
                .range((name.clone(), RequestId(0))..)
                .take_while(|(other, _)| other == name);
            for request in of_name.map(|(_, request)| *request).collect::<Vec<_>>() {
                cx.out.push(Output::Answer { request, outcome: Outcome::NotOpen });
                self.end(request, cx);
            }
        }
        for request in writes {
            self.answer_call(request, Outcome::NotOpen, cx);
        }
    }
}

/// Returns whether a grantor can have this content, and can have sent it with this answer. A
/// version above all that elders deal would hide each later write from this member, and from the
/// next grantor.
fn can_be_sent(
    content: &Content,
    answers: Option<(RequestId, ObjectReply)>,
    cx: &StepContext,
) -> bool {
    let is_possible = match answers {
        Some((_, ObjectReply::Opened(token))) => cx.is_dealt(token),
        Some((_, ObjectReply::Written { version, .. })) => version <= content.version,
        Some((_, ObjectReply::Unwritten)) | None => true,
    };
    is_possible && cx.is_dealt(content.version) || planted!(cx.mutant, TakeAnyVersion)
}
