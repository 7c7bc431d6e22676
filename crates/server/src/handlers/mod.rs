//! What answers each route. A handler reads the request, asks the store, writes the reply; who may do what was decided
//! before, except where it depends on the thing itself.

pub(crate) mod alerts;
pub(crate) mod dead;
pub(crate) mod events;
pub(crate) mod gates;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod meta;
pub(crate) mod parks;
pub(crate) mod queues;
pub(crate) mod work;
pub(crate) mod workers;
