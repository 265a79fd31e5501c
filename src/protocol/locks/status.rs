//! The status of a member's locks: the services with their locks, in pages.

use super::*;

impl Locks {
    /// The services after the mark `after`, with their locks: at most `most` of both together, but
    /// at least one. The last value is `None` if no more follow.
    pub(crate) fn status_page(
        &self,
        me: ProcessId,
        now: Time,
        after: Option<&StatusMark>,
        most: usize,
    ) -> (Vec<ServiceStatus>, Option<StatusMark>) {
        // A service with further locks also appears on the next page.
        let from = after.map_or(Bound::Unbounded, |mark| match mark.lock {
            Some(_) => Bound::Included(&mark.service),
            None => Bound::Excluded(&mark.service),
        });
        let mut left = most.max(2);
        let mut page = Vec::new();
        let mut services = self.services_from(me, from, left);
        while let Some(mut status) = services.pop_front() {
            left -= 1;
            let service = status.service.clone();
            if let Some(grantor) = self.grantors.get(&service) {
                let told = after
                    .filter(|mark| mark.service == service)
                    .and_then(|mark| mark.lock.as_ref());
                let (locks, is_end) = grantor.status(now, told.map(Option::as_ref), left);
                left -= locks.len();
                status.locks = locks;
                if !is_end {
                    let last = status.locks.last().map(|lock| lock.name.clone());
                    let lock = last.or_else(|| told.cloned());
                    // The page lists none of its locks yet: the service comes whole with the next
                    // page.
                    if lock.is_some() || page.is_empty() {
                        page.push(status);
                        return (page, Some(StatusMark { service, lock }));
                    }
                    let before = page.last().map(|status: &ServiceStatus| status.service.clone());
                    return (page, before.map(|service| StatusMark { service, lock: None }));
                }
            }
            page.push(status);
            if left == 0 {
                let is_last = services.is_empty()
                    && self.services_from(me, Bound::Excluded(&service), 1).is_empty();
                return (page, (!is_last).then_some(StatusMark { service, lock: None }));
            }
        }
        (page, None)
    }

    /// The services for a process outside the cluster: at most `most` services and `most` locks in
    /// all. The rest is counted.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn status_cut(
        &self,
        me: ProcessId,
        now: Time,
        most: usize,
    ) -> (Vec<ServiceStatus>, usize) {
        let mut services: Vec<ServiceStatus> =
            self.services_from(me, Bound::Unbounded, most).into();
        let more = self.client.services().max(self.grantors.len()).saturating_sub(services.len());
        let mut left = most;
        for service in &mut services {
            if let Some(grantor) = self.grantors.get(&service.service) {
                (service.locks, _) = grantor.status(now, None, left);
                left -= service.locks.len();
                service.more_locks = grantor.listed().saturating_sub(service.locks.len());
            }
        }
        (services, more)
    }

    /// The first services from the bound on, without their locks.
    fn services_from(
        &self,
        me: ProcessId,
        from: Bound<&ServiceName>,
        most: usize,
    ) -> VecDeque<ServiceStatus> {
        let mut services: BTreeMap<ServiceName, ServiceStatus> = BTreeMap::new();
        for (service, grantor, [waiting_here, held_here, open_here]) in
            self.client.status(from).take(most)
        {
            let (grantor, epoch) = grantor.unzip();
            let own = ServiceStatus::new(service);
            let status =
                ServiceStatus { grantor, epoch, waiting_here, held_here, open_here, ..own };
            services.insert(service.clone(), status);
        }
        for (service, [kept, in_use]) in self.client.kept_counts() {
            if let Some(status) = services.get_mut(service) {
                (status.kept_here, status.kept_in_use_here) = (kept, in_use);
            }
        }
        for (service, grantor) in
            self.grantors.range::<ServiceName, _>((from, Bound::Unbounded)).take(most)
        {
            let status =
                services.entry(service.clone()).or_insert_with(|| ServiceStatus::new(service));
            status.grantor = Some(me);
            status.epoch = Some(grantor.epoch());
            status.granting = Some(grantor.state());
        }
        services.into_values().take(most).collect()
    }
}
