//! Questions about the World.

use crate::site::{ProcessState, Site};
use crate::world::World;
use elderlock::protocol::{GrantorState, Node, ProcessId, Sizes, Status, View};

impl World {
    /// The present process at `site`.
    pub fn process(&self, site: usize) -> ProcessId {
        self.sites[site].process().expect("a process has run there")
    }

    /// The numbers of all sites.
    pub fn sites(&self) -> std::ops::Range<usize> {
        0..self.sites.len()
    }

    /// Returns whether a process runs there and is not stopped.
    pub fn is_up(&self, site: usize) -> bool {
        self.sites[site].run == ProcessState::Up
    }

    /// Returns whether a process is there and is stopped.
    pub fn is_paused(&self, site: usize) -> bool {
        self.sites[site].run == ProcessState::Paused
    }

    /// Returns whether the process at `site` has left, and whether its goodbye was heard.
    pub fn was_heard(&self, site: usize) -> Option<bool> {
        self.sites[site].heard
    }

    /// Returns whether a process is there, running or stopped.
    pub fn is_alive(&self, site: usize) -> bool {
        self.sites[site].is_alive()
    }

    /// Returns whether the member is in a view and its lease runs.
    pub fn is_ready(&self, site: usize) -> bool {
        let peer = &self.sites[site];
        peer.is_alive()
            && peer.node.as_ref().is_some_and(|node| node.is_ready(peer.clock.local(self.now)))
    }

    /// The view of the member.
    pub fn view(&self, site: usize) -> Option<&View> {
        self.sites[site]
            .node
            .as_deref()
            .filter(|_| self.sites[site].is_alive())
            .and_then(Node::view)
    }

    /// The highest view that any running member has, by a member whose lease runs if there is one.
    pub fn latest_view(&self) -> Option<&View> {
        let views = self.sites().filter_map(|site| Some((self.is_ready(site), self.view(site)?)));
        views.max_by_key(|(ready, view)| (*ready, view.number)).map(|(_, view)| view)
    }

    /// Returns the sites of the members of the latest view, oldest first. Members whose processes
    /// have ended are left out.
    pub fn in_view(&self) -> Vec<usize> {
        let Some(view) = self.latest_view() else { return Vec::new() };
        view.members.iter().filter_map(|member| self.site_of(member.info.process)).collect()
    }

    /// Returns the site of the elder of the latest view.
    #[track_caller]
    pub fn elder(&self) -> usize {
        self.find_elder().expect("there is an elder")
    }

    /// Returns the site of the elder of the latest view, if it runs.
    pub fn find_elder(&self) -> Option<usize> {
        let elder = self.latest_view()?.elder().process;
        self.present_site_of(elder)
    }

    /// Returns the site of the grantor of the service.
    #[track_caller]
    pub fn grantor(&self, service: &str) -> usize {
        self.find_grantor(service).expect("there is a grantor")
    }

    /// Returns the site of the grantor of the service: the acting one of the highest epoch whose
    /// lease runs.
    pub fn find_grantor(&self, service: &str) -> Option<usize> {
        let acting = |site: &usize| {
            let status = self.status(*site)?;
            let service = status.services.iter().find(|of| of.service.as_str() == service)?;
            service.granting.filter(|state| *state == GrantorState::Acting).and(service.epoch)
        };
        let ready = self.sites().filter(|site| self.is_ready(*site));
        ready.filter_map(|site| Some((acting(&site)?, site))).max().map(|(_, site)| site)
    }

    /// The member's status.
    pub fn status(&self, site: usize) -> Option<Status> {
        let peer = &self.sites[site];
        peer.node
            .as_ref()
            .filter(|_| peer.is_alive())
            .map(|node| node.status(peer.clock.local(self.now)))
    }

    /// Whether each of the locks that a running member keeps is in use.
    pub fn kept_at(&self, site: usize) -> Vec<bool> {
        let node = self.sites[site].node.as_ref();
        node.into_iter().flat_map(|node| node.kept()).map(|(_, is_used)| is_used).collect()
    }

    /// Returns whether no member knows of a hold or a waiter.
    pub fn is_empty_everywhere(&self) -> bool {
        self.demanded().filter_map(|site| self.status(site)).all(|status| {
            status.services.iter().all(|of| {
                of.locks.is_empty()
                    && of.waiting_here == 0
                    && of.held_here == 0
                    && of.open_here == 0
            })
        })
    }

    /// How much the member keeps.
    pub fn sizes(&self, site: usize) -> Option<Sizes> {
        let peer = &self.sites[site];
        peer.node
            .as_ref()
            .filter(|_| peer.is_alive())
            .map(|node| node.sizes(peer.clock.local(self.now)))
    }

    /// Returns whether no member keeps more than a newly joined member without requests.
    pub fn is_at_rest(&self) -> bool {
        let others = self.demanded().count().saturating_sub(1);
        self.demanded().filter_map(|site| self.sizes(site)).all(|sizes| {
            // A suspicion ends with a packet or a new connection, and not every pair exchanges
            // packets.
            let Sizes { links, suspected: _, .. } = sizes;
            links <= others && Sizes { links: 0, suspected: 0, ..sizes } == Sizes::default()
        })
    }

    /// Returns whether the processes at these sites are a quorum of the view's council.
    pub fn is_quorum(&self, view: &View, sites: impl IntoIterator<Item = usize>) -> bool {
        let processes: Vec<ProcessId> =
            sites.into_iter().map(|site| &self.sites[site]).filter_map(Site::process).collect();
        view.is_quorum(&processes)
    }
}
