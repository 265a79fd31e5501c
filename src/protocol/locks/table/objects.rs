//! The open objects of a table, and their contents.

use super::*;
use crate::protocol::content::LastWrite;

impl Table {
    pub(super) fn open(
        &mut self,
        process: ProcessId,
        name: &LockName,
        value: &Value,
        version: Token,
    ) {
        self.note_object(name);
        if let Some(object) = self.objects.get_mut(name) {
            *object.openers.entry(process).or_default() += 1;
            return;
        }
        let content =
            Content { value: value.clone(), version, maybe_stale: false, writes: BTreeMap::new() };
        let openers = BTreeMap::from([(process, 1)]);
        self.reconsider(name, |table| {
            drop(
                table
                    .objects
                    .insert(name.clone(), TableObject { content, openers, adopted: false }),
            )
        });
    }

    pub(super) fn shut(&mut self, process: ProcessId, name: &LockName) {
        self.note_object(name);
        let is_copy = self.is_copy();
        let Some(object) = self.objects.get_mut(name) else { return };
        if let Some(count) = object.openers.get_mut(&process) {
            *count -= 1;
            if *count == 0 {
                object.openers.remove(&process);
                if !planted!(self.mutant, KeepWritesOfTheGone) {
                    object.content.writes.remove(&process);
                }
            }
        }
        if object.openers.is_empty() && !object.adopted && !is_copy {
            self.reconsider(name, |table| drop(table.objects.remove(name)));
        }
    }

    /// The content of the object.
    pub(crate) fn content(&self, name: &LockName) -> Option<&Content> {
        self.objects.get(name).map(|object| &object.content)
    }

    /// All objects of the table, with their contents.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&LockName, &Content)> {
        self.objects.iter().map(|(name, object)| (name, &object.content))
    }

    /// Returns whether the member has the object open.
    pub(crate) fn is_open(&self, name: &LockName, process: ProcessId) -> bool {
        self.objects.get(name).is_some_and(|object| object.openers.contains_key(&process))
    }

    /// The members that have the object open.
    pub(crate) fn openers(&self, name: &LockName) -> impl Iterator<Item = ProcessId> {
        self.objects.get(name).into_iter().flat_map(|object| object.openers.keys().copied())
    }

    /// Adds an object's content that another grantor or a member reported: the highest version
    /// stays. The members that have it open are reported afterwards. Until all of them are known,
    /// the object stays even if some of them leave.
    pub(crate) fn adopt(&mut self, name: LockName, content: Content) {
        self.note_object(&name);
        self.has_adopted = true;
        if let Some(object) = self.objects.get_mut(&name) {
            object.adopted = true;
            if object.content.version >= content.version {
                return;
            }
        }
        self.reconsider(&name, |table| match table.objects.get_mut(&name) {
            Some(object) => object.content = content,
            None => {
                let object = TableObject { content, openers: BTreeMap::new(), adopted: true };
                table.objects.insert(name.clone(), object);
            }
        });
    }

    /// Removes reported objects that no member has open, and the writes of members that do not have
    /// the object open.
    pub(crate) fn drop_unopened(&mut self) {
        if !std::mem::take(&mut self.has_adopted) {
            return;
        }
        let unopened: Vec<LockName> = self
            .objects
            .iter()
            .filter(|(_, object)| object.openers.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        for name in unopened {
            self.reconsider(&name, |table| drop(table.objects.remove(&name)));
        }
        for TableObject { content, openers, adopted } in self.objects.values_mut() {
            if !planted!(self.mutant, KeepWritesOfTheGone) {
                content.writes.retain(|process, _| openers.contains_key(process));
            }
            *adopted = false;
        }
    }

    /// Writes into an object that its member has open.
    pub(crate) fn write(
        &mut self,
        process: ProcessId,
        name: &LockName,
        value: Value,
        write: LastWrite,
    ) {
        self.note_object(name);
        self.reconsider(name, |table| {
            if let Some(TableObject { content, openers, .. }) = table.objects.get_mut(name)
                && openers.contains_key(&process)
            {
                content.writes.insert(process, write);
                (content.value, content.version, content.maybe_stale) =
                    (value, write.version, false);
            }
        });
    }

    pub(super) fn limit(&self, name: &LockName) -> u32 {
        self.objects.get(name).map_or(0, |object| object.content.value.limit())
    }
}
