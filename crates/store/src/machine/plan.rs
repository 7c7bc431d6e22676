//! What a batch of new jobs waits for, found out before any of them is stored.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use tidegate_core::codes;
use tidegate_core::ids::{JobId, Seq, UniqueKey};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::enqueue::Checked;
use super::flows::{End, Verdict};
use super::{Change, Machine};
use crate::params::{EnqueueOutcome, Enqueued, NewJob};
use crate::rows::{KindId, Reads, Rows};
use crate::{Error, Result};

/// How far the line of recoveries of a dead job is followed.
const LONGEST_LINE: usize = 100;

/// What the jobs of a batch wait for.
#[derive(Debug)]
pub(super) struct Plan {
    /// Jobs of the batch, those that are waited for before those that wait.
    order: Vec<usize>,
    /// For each job what it waits for, in the order in which it names them.
    links: Vec<Vec<Link>>,
    /// Stored jobs in whose place some of the batch stand that others wait for: the same job, or the one that holds the key.
    stand_ins: HashMap<usize, Node>,
}

impl Plan {
    /// Which of the jobs will wait for others, or be dead at once.
    pub(super) fn waits(&self, jobs: &[NewJob], checked: &[Checked]) -> Vec<bool> {
        let mut nodes: Vec<Option<Node>> = vec![None; jobs.len()];
        let mut holders: HashMap<(KindId, &UniqueKey), Node> = HashMap::new();
        let mut waits = vec![false; jobs.len()];
        for &i in &self.order {
            let (job, kind) = (&jobs[i], checked[i].kind);
            let ends = self.links[i].iter().filter_map(|link| match link {
                Link::Inside(j) => nodes[*j],
                Link::Outside(node) => Some(*node),
            });
            let waiting = wait_for(ends, job.on_dead);
            waits[i] = waiting.open > 0 || waiting.fatal.is_some();
            let key = job.unique.as_ref().map(|unique| (kind, &unique.key));
            let held = key.and_then(|key| holders.get(&key));
            let node = self.stand_ins.get(&i).or(held).copied();
            let node = node.unwrap_or(Node { id: job.id, seq: None, end: waiting.fatal.map(|_| End::Dead) });
            // One that is dead at once holds its key no more.
            if let Some(key) = key.filter(|_| node.end.is_none()) {
                holders.entry(key).or_insert(node);
            }
            nodes[i] = Some(node);
        }
        waits
    }
}

/// A job that one of the batch waits for.
#[derive(Debug, Clone, Copy)]
enum Link {
    /// Another one of the batch.
    Inside(usize),
    /// One that is stored.
    Outside(Node),
}

/// A stored job that others wait for.
#[derive(Debug, Clone, Copy)]
struct Node {
    id: JobId,
    /// `None`: it completed so long ago that it is not stored any more.
    seq: Option<Seq>,
    end: Option<End>,
}

/// What the jobs that wait for it are counted by: different ids can mean one job.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Counted<'j> {
    Stored(Seq),
    Keyed(KindId, &'j UniqueKey),
    New(JobId),
}

/// A batch while it is found out what its jobs wait for.
struct Batch<'j> {
    jobs: &'j [NewJob],
    checked: &'j [Checked],
    now: Timestamp,
    inside: HashMap<JobId, usize>,
    /// Stored jobs that were looked up.
    known: HashMap<JobId, Node>,
    stand_ins: HashMap<usize, Node>,
    dependents: HashMap<Counted<'j>, u32>,
}

impl<'j> Batch<'j> {
    fn new(jobs: &'j [NewJob], checked: &'j [Checked], now: Timestamp) -> Self {
        let inside = jobs.iter().enumerate().map(|(i, job)| (job.id, i)).collect();
        let (known, stand_ins, dependents) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { jobs, checked, now, inside, known, stand_ins, dependents }
    }

    fn counted(&self, i: usize) -> Counted<'j> {
        match &self.jobs[i].unique {
            Some(unique) => Counted::Keyed(self.checked[i].kind, &unique.key),
            None => Counted::New(self.jobs[i].id),
        }
    }
}

/// What one job waits for, once all of that is stored.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) parents: Vec<Seq>,
    /// How many of them it has to wait for.
    pub(super) open: u32,
    /// Those that are not finished.
    unfinished: Vec<Seq>,
    /// One that makes it dead at once.
    pub(super) fatal: Option<(JobId, End)>,
}

/// Ids that jobs of the batch wait for and that are not in it.
pub(super) fn outside(jobs: &[NewJob]) -> Vec<JobId> {
    if jobs.iter().all(|job| job.after.is_empty()) {
        return vec![];
    }
    let inside: HashSet<JobId> = jobs.iter().map(|job| job.id).collect();
    let mut outside: HashSet<JobId> = HashSet::new();
    let all = jobs.iter().flat_map(|job| &job.after).take(limits::MAX_ENQUEUE_EDGES);
    outside.extend(all.filter(|id| !inside.contains(id)));
    outside.into_iter().collect()
}

/// An order in which everything comes after what it waits for, as close to the given one as can be; or some that wait for
/// each other.
pub(super) fn order(waits_for: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let n = waits_for.len();
    let mut open: Vec<usize> = waits_for.iter().map(Vec::len).collect();
    let mut waiting: Vec<Vec<usize>> = vec![vec![]; n];
    for (i, parents) in waits_for.iter().enumerate() {
        for parent in parents {
            waiting[*parent].push(i);
        }
    }
    let mut free: VecDeque<usize> = (0..n).filter(|i| open[*i] == 0).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(i) = free.pop_front() {
        order.push(i);
        for child in &waiting[i] {
            open[*child] -= 1;
            if open[*child] == 0 {
                free.push_back(*child);
            }
        }
    }
    if order.len() == n {
        return Ok(order);
    }
    // Whoever is left waits for one that is left, too: following them comes back to one that was met.
    let mut circle: Vec<usize> = vec![];
    let mut at = (0..n).find(|i| open[*i] > 0).unwrap_or(0);
    while !circle.contains(&at) {
        circle.push(at);
        at = waits_for[at].iter().copied().find(|p| open[*p] > 0).unwrap_or(at);
    }
    let first = circle.iter().position(|i| *i == at).unwrap_or(0);
    Err(circle.split_off(first))
}

impl<R: Rows> Machine<R> {
    /// Finds out what the jobs wait for. `None`: none of them waits.
    pub(super) fn plan(
        &mut self,
        jobs: &[NewJob],
        checked: &[Checked],
        now: Timestamp,
    ) -> Result<Option<Plan>> {
        let edges: usize = jobs.iter().map(|job| job.after.len()).sum();
        if edges == 0 {
            return Ok(None);
        }
        if edges > limits::MAX_ENQUEUE_EDGES {
            let detail =
                format!("{edges} dependencies in one call; {} are allowed", limits::MAX_ENQUEUE_EDGES);
            return Err(Error::new(codes::INVALID_BATCH, detail));
        }
        let mut batch = Batch::new(jobs, checked, now);
        let mut links = Vec::with_capacity(jobs.len());
        for i in 0..jobs.len() {
            links.push(self.links(&mut batch, i).map_err(|e| {
                if jobs.len() == 1 {
                    return e;
                }
                Error::new(e.code, format!("job {} of {}: {}", i + 1, jobs.len(), e.detail))
            })?);
        }
        let within = |link: &Link| if let Link::Inside(i) = link { Some(*i) } else { None };
        let waits_for: Vec<Vec<usize>> =
            links.iter().map(|of_job| of_job.iter().filter_map(within).collect()).collect();
        let order = order(&waits_for).map_err(|circle| {
            let ids: Vec<String> = circle.iter().take(5).map(|i| jobs[*i].id.to_string()).collect();
            let more = if circle.len() > 5 { ", …" } else { "" };
            let detail = format!("{} jobs wait for each other: {}{more}", circle.len(), ids.join(", "));
            Error::new(codes::CYCLE, detail)
        })?;
        Ok(Some(Plan { order, links, stand_ins: batch.stand_ins }))
    }

    /// What one job of the batch waits for.
    fn links(&mut self, batch: &mut Batch<'_>, i: usize) -> Result<Vec<Link>> {
        let job = &batch.jobs[i];
        // A job that is stored already waits for what it waited for.
        let after: &[JobId] = if batch.checked[i].same { &[] } else { &job.after };
        if after.len() > limits::MAX_DEPENDENCIES {
            let detail =
                format!("it waits for {} jobs; {} are allowed", after.len(), limits::MAX_DEPENDENCIES);
            return Err(Error::new(codes::INVALID_BATCH, detail));
        }
        let mut seen = HashSet::with_capacity(after.len());
        let mut links = Vec::with_capacity(after.len());
        for id in after.iter().filter(|id| seen.insert(**id)) {
            let link = self.link(batch, job, *id)?;
            if self.count_dependent(batch, link)? > limits::MAX_DEPENDENTS {
                let detail = format!("more than {} jobs would wait for {id}", limits::MAX_DEPENDENTS);
                return Err(Error::new(codes::INVALID_BATCH, detail));
            }
            links.push(link);
        }
        Ok(links)
    }

    /// One more job waits for this one. Returns how many then do.
    fn count_dependent(&mut self, batch: &mut Batch<'_>, link: Link) -> Result<u32> {
        let (node, counted) = match link {
            Link::Outside(node) => (Some(node), Counted::New(node.id)),
            Link::Inside(i) => (self.stand_in(batch, i)?, batch.counted(i)),
        };
        let counted = node.and_then(|node| node.seq).map_or(counted, Counted::Stored);
        let all = match batch.dependents.entry(counted) {
            Entry::Occupied(all) => all.into_mut(),
            Entry::Vacant(none) => none.insert(node.map_or(Ok(0), |node| self.held(node))?),
        };
        *all += 1;
        Ok(*all)
    }

    /// The stored job in whose place a job of the batch stands, if one does. One that is gone has ended well.
    fn stand_in(&mut self, batch: &mut Batch<'_>, i: usize) -> Result<Option<Node>> {
        if let Some(node) = batch.stand_ins.get(&i) {
            return Ok(Some(*node));
        }
        let (job, checked) = (&batch.jobs[i], &batch.checked[i]);
        let id = if checked.same {
            Some(job.id)
        } else {
            self.key_holder(checked.kind, job, batch.now)?.map(|holder| holder.id)
        };
        let Some(id) = id else { return Ok(None) };
        let gone = Node { id, seq: None, end: Some(End::Completed) };
        let node = self.node(id)?.unwrap_or(gone);
        batch.stand_ins.insert(i, node);
        Ok(Some(node))
    }

    /// How many wait, or waited, for a stored job.
    fn held(&mut self, node: Node) -> Result<u32> {
        let Some(seq) = node.seq.filter(|_| self.memory.edges > 0) else { return Ok(0) };
        match self.memory.dependents.get(&seq) {
            Some(held) => Ok(*held),
            None if node.end.is_none() => Ok(0),
            // Memory does not count those of a finished one.
            None => self.rows.count_children(seq),
        }
    }

    fn link(&mut self, batch: &mut Batch<'_>, job: &NewJob, id: JobId) -> Result<Link> {
        let unknown = || Error::new(codes::DEPENDENCY_NOT_FOUND, format!("there is no job {id} to wait for"));
        if let Some(&i) = batch.inside.get(&id) {
            let foreign = job.tenant.is_some() && batch.jobs[i].tenant != job.tenant;
            return if foreign { Err(unknown()) } else { Ok(Link::Inside(i)) };
        }
        let node = match batch.known.get(&id) {
            Some(node) => *node,
            None => {
                let node = self.node(id)?.ok_or_else(unknown)?;
                batch.known.insert(id, node);
                node
            }
        };
        // A tenant's job waits for that tenant's alone: what others have is not even there.
        if let (Some(tenant), Some(seq)) = (&job.tenant, node.seq) {
            let (_, owner) = self.lane_and_tenant(seq)?;
            if owner.is_none() || owner != self.memory.names.tenant_no(tenant) {
                return Err(unknown());
            }
        }
        Ok(Link::Outside(node))
    }

    /// A stored job, or the one that a dead one was recovered as.
    fn node(&mut self, id: JobId) -> Result<Option<Node>> {
        let Some(seq) = self.rows.find_job(id)? else { return Ok(None) };
        self.line(id, seq).map(Some)
    }

    /// The last of the line of recoveries that begins with this job.
    fn line(&mut self, id: JobId, mut seq: Seq) -> Result<Node> {
        for _ in 0..LONGEST_LINE {
            let done = self.end_of(seq)?;
            let Some((_, Some(next))) = done else {
                return Ok(Node { id, seq: Some(seq), end: done.map(|(end, _)| end) });
            };
            match self.rows.find_job(next)? {
                Some(next) => seq = next,
                // A dead letter is kept longer than what completed, and longer than an older letter: its successor has
                // completed, or was called off, and is not stored any more.
                None => return Ok(Node { id, seq: None, end: Some(End::Completed) }),
            }
        }
        // Nobody recovers a job that often; whatever it is, it is not waited for.
        Ok(Node { id, seq: Some(seq), end: Some(End::Dead) })
    }

    /// How a stored job ended, if it did, and what it was recovered as.
    fn end_of(&mut self, seq: Seq) -> Result<Option<(End, Option<JobId>)>> {
        let untold = self.memory.untold.contains_key(&seq);
        let waited_for = self.memory.dependents.contains_key(&seq) && !untold;
        if waited_for || self.memory.leases.running(seq).is_some() {
            return Ok(None);
        }
        let Some(done) = self.rows.done(seq)? else { return Ok(None) };
        let recovered = done.letter.and_then(|letter| letter.recovered_as);
        if untold {
            // Others have yet to be told: whoever comes now waits with them, unless it goes on as another job.
            let goes_on = recovered.map_or(Ok(None), |id| self.rows.find_job(id))?;
            if goes_on.is_none() {
                return Ok(None);
            }
        }
        Ok(End::of(done.state).map(|end| (end, recovered)))
    }

    /// What a job that takes the place of a dead one waits for: what that one waited for, as far as it is not finished or was
    /// recovered itself. Whatever else did not complete is not waited for again: somebody has decided that the job is to run.
    pub(super) fn wait_again(&mut self, dead: Seq) -> Result<Waiting> {
        let mut nodes = vec![];
        if self.memory.edges > 0 {
            for parent in self.rows.parents(dead)? {
                if let Some(row) = self.rows.job(parent)? {
                    let node = self.line(row.id, parent)?;
                    let untold =
                        node.seq.and_then(|seq| self.memory.untold.get(&seq)).map(|untold| untold.end);
                    // No edge either: what becomes of that one later is no matter of this one.
                    if untold.or(node.end).is_none_or(|end| end == End::Completed) {
                        nodes.push(node);
                    }
                } else if let Some(kept) = self.rows.kept(parent)? {
                    // Pruned, but its result is still to be seen; maybe nobody has been told of its end yet.
                    let untold = self.memory.untold.get(&parent).map(|untold| untold.end);
                    if untold.is_none_or(|end| end == End::Completed) {
                        let end = End::of(kept.state).filter(|_| untold.is_none());
                        nodes.push(Node { id: kept.id, seq: Some(parent), end });
                    }
                }
            }
        }
        Ok(wait_for(nodes.into_iter(), tidegate_core::job::OnDead::Ignore))
    }

    /// Adds the edges of a job that was just stored.
    pub(super) fn link_up(&mut self, seq: Seq, waiting: Waiting) -> Result<()> {
        for parent in &waiting.parents {
            self.rows.add_edge(*parent, seq)?;
        }
        let edges = waiting.parents.len() as u64;
        if edges == 0 {
            return Ok(());
        }
        self.change(Change::Linked { parents: waiting.unfinished, edges })
    }

    /// An order of dead letters in which each comes after those that it waited for.
    pub(super) fn order_letters(&mut self, dead: &[Option<Seq>]) -> Result<Vec<usize>> {
        let all: Vec<usize> = (0..dead.len()).collect();
        if self.memory.edges == 0 || dead.len() == 1 {
            return Ok(all);
        }
        let places: HashMap<Seq, usize> =
            dead.iter().enumerate().filter_map(|(i, seq)| Some(((*seq)?, i))).collect();
        if R::PREFETCHES {
            self.hint(&Reads { parents: places.keys().copied().collect(), ..Reads::default() })?;
        }
        let mut waits_for = Vec::with_capacity(dead.len());
        for seq in dead {
            let parents = seq.map_or(Ok(vec![]), |seq| self.rows.parents(seq))?;
            waits_for.push(parents.iter().filter_map(|p| places.get(p).copied()).collect());
        }
        Ok(order(&waits_for).unwrap_or(all))
    }

    /// Stores jobs that wait for each other, or for others.
    pub(super) fn enqueue_flow(
        &mut self,
        jobs: Vec<NewJob>,
        checked: Vec<Checked>,
        plan: Plan,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>> {
        let n = jobs.len();
        let mut slots: Vec<Option<(NewJob, Checked)>> = jobs.into_iter().zip(checked).map(Some).collect();
        let mut nodes: Vec<Option<Node>> = vec![None; n];
        let mut replies: Vec<Option<Enqueued>> = vec![None; n];
        for i in plan.order {
            let Some((job, checked)) = slots[i].take() else { continue };
            let ends = plan.links[i].iter().filter_map(|link| match link {
                Link::Inside(j) => nodes[*j],
                Link::Outside(node) => Some(*node),
            });
            let waiting = wait_for(ends, job.on_dead);
            let waits = (!job.after.is_empty()).then_some(&waiting);
            let reply = self.enqueue_one(job, checked, waits, now)?;
            nodes[i] = Some(if reply.outcome == EnqueueOutcome::Created {
                let seq = Seq(self.memory.next_seq - 1);
                let fatal = waiting.fatal;
                self.link_up(seq, waiting)?;
                let end = match fatal {
                    Some((parent, end)) => {
                        self.bury_blocked(seq, parent, end, now)?;
                        Some(End::Dead)
                    }
                    None => None,
                };
                Node { id: reply.id, seq: Some(seq), end }
            } else {
                // Another job holds its key: who waits for this one waits for that one.
                let gone = Node { id: reply.id, seq: None, end: Some(End::Completed) };
                self.node(reply.id)?.unwrap_or(gone)
            });
            replies[i] = Some(reply);
        }
        Ok(replies.into_iter().flatten().collect())
    }
}

fn wait_for(nodes: impl Iterator<Item = Node>, on_dead: tidegate_core::job::OnDead) -> Waiting {
    let mut waiting = Waiting::default();
    let mut seen = HashSet::new();
    for Node { id, seq, end } in nodes {
        // One job may have two names here: it holds the key of another, or took the place of a dead one.
        if seq.is_some_and(|seq| !seen.insert(seq)) {
            continue;
        }
        waiting.parents.extend(seq);
        match end.map(|end| (end, end.verdict(on_dead))) {
            None => {
                waiting.open += 1;
                waiting.unfinished.extend(seq);
            }
            Some((_, Verdict::Open)) => waiting.open += 1,
            Some((_, Verdict::Satisfied)) => {}
            Some((end, Verdict::Fatal)) => waiting.fatal = waiting.fatal.or(Some((id, end))),
        }
    }
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_after_what_it_waits_for() {
        assert_eq!(order(&[vec![2], vec![], vec![1]]), Ok(vec![1, 2, 0]));
        assert_eq!(order(&[vec![], vec![], vec![]]), Ok(vec![0, 1, 2]), "nothing is moved without need");
    }

    #[test]
    fn a_circle_is_named_without_what_only_leads_to_it() {
        let mut circle = order(&[vec![1], vec![2], vec![1], vec![]]).unwrap_err();
        circle.sort_unstable();
        assert_eq!(circle, [1, 2]);
        assert_eq!(order(&[vec![0]]), Err(vec![0]), "itself");
    }
}
