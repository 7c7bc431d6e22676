//! Numbered things whose numbers are used again.

use serde::{Deserialize, Serialize};

/// Numbered things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline]
    pub(super) fn insert(&mut self, item: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.items[at as usize] = Some(item);
            return at;
        }
        self.items.push(Some(item));
        self.items.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let item = self.items.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(item)
    }

    /// Drops it where it is.
    pub(super) fn discard(&mut self, at: u32) {
        if let Some(item @ Some(_)) = self.items.get_mut(at as usize) {
            *item = None;
            self.free.push(at);
        }
    }

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.items.get(at as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.items.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Numbers in use and not.
    pub(super) fn slots(&self) -> usize {
        self.items.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().enumerate().filter_map(|(i, item)| item.as_ref().map(|item| (i as u32, item)))
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.free.clear();
        std::mem::take(&mut self.items).into_iter().flatten()
    }
}
