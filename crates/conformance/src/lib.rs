//! One suite for every store.
//!
//! - [`cases`]: what a store must do, case by case, by name. [`suite!`] makes them tests of a backend.
//! - [`differential`]: seeded random histories, run against two stores, every reply compared.
//! - [`flock`]: several machines over one set of rows, which follow each other.
//! - [`properties`]: several workers at once against a store, judged by the referee.
//! - [`referee`]: an independent judge of the invariants, which looks only at calls and replies.
#![expect(clippy::missing_panics_doc, reason = "a case fails by panicking")]

pub mod cases;
pub mod differential;
pub mod flock;
pub mod kit;
pub mod properties;
pub mod referee;

pub use kit::{Differs, Harness, World};

/// Makes every case a test of a backend: `suite!(memory, open)` yields `memory::a_lost_lease_cannot_complete` and
/// the others. `open` is an async function without arguments that returns a [`Harness`] around an empty store.
#[macro_export]
macro_rules! suite {
    ($backend:ident, $open:path) => {
        mod $backend {
            $crate::__tests! { $open;
            enqueue {
                a_job_is_stored_with_what_its_kind_says,
                a_trace_context_stays_with_its_job,
                a_job_can_differ_from_its_kind,
                a_batch_with_one_bad_job_stores_nothing,
                a_batch_is_answered_in_its_order,
                empty_and_giant_batches_are_refused,
                an_id_twice_in_a_batch_is_refused,
                the_same_job_sent_again_is_kept,
                the_same_job_is_kept_whatever_the_registry_says_by_now,
                a_payload_that_only_begins_like_the_stored_one_is_another_job,
                another_job_under_the_same_id_is_refused,
                a_repeated_id_that_was_said_to_be_fresh_is_refused_and_harms_nothing,
                recovering_under_an_id_that_is_taken_is_refused_and_harms_nothing,
                unknown_kinds_and_queues_are_refused,
                times_and_caps_out_of_range_are_refused,
                a_job_for_the_past_is_ready_now,
                what_was_enqueued_survives_a_restart,
                a_number_is_never_given_twice,
                an_enqueue_wakes_who_waits_for_work,
                a_closed_store_refuses,
                a_job_that_does_not_exist_is_not_found,
            }
            unique {
                keep_returns_the_job_that_holds_the_key_in_every_scope,
                replace_gives_a_pending_job_the_new_payload_in_every_scope,
                hasten_brings_a_scheduled_job_forward_in_every_scope,
                hasten_never_puts_a_job_off,
                a_pending_key_is_free_after_the_first_claim_and_never_taken_again,
                a_running_key_is_held_until_the_job_ends,
                a_running_key_is_free_after_every_end,
                a_period_key_is_held_whatever_becomes_of_the_job_and_ends_on_time,
                keys_of_different_kinds_do_not_meet,
                one_key_twice_in_a_batch_makes_one_job,
                hasten_never_comes_before_a_time_the_server_named,
                an_erased_job_frees_its_key,
            }
            order {
                a_delayed_job_is_claimed_when_its_time_has_come,
                promotion_is_bounded_and_goes_on,
                higher_priorities_come_first,
                a_lane_is_first_in_first_out,
                a_large_group_does_not_keep_small_ones_waiting,
                groups_with_backlog_share_evenly,
                an_idle_lane_that_wakes_is_served_in_the_next_claim,
                a_group_is_not_overtaken_for_ever_by_new_groups,
                ageing_serves_the_lowest_priority_within_its_bound,
                ageing_survives_a_restart,
                queues_share_a_worker_by_weight,
                a_queue_that_wakes_is_not_punished_for_the_rate_of_a_queue_it_does_not_share_with,
                a_delayed_job_takes_its_place_by_arrival,
            }
            limits {
                a_queue_runs_no_more_than_its_concurrency,
                a_place_is_free_after_every_way_to_end,
                a_group_runs_no_more_than_its_concurrency_over_all_priorities,
                the_empty_group_has_no_group_limit,
                a_limit_can_be_changed_live,
                the_limiter_is_exact_in_a_sliding_window,
                the_limiter_remembers_over_a_restart,
                the_limiter_counts_starts_not_ends,
                suspects_count_against_every_limit,
                a_worker_takes_no_more_than_its_room_in_a_queue,
                a_claim_takes_only_from_the_queues_it_names,
                a_full_queue_refuses_and_stores_nothing,
                a_tenant_cannot_fill_the_queue,
                new_tenants_of_one_batch_are_counted_apart,
                a_claim_that_finds_nothing_never_says_to_come_back_in_the_past,
                settings_that_cannot_work_are_refused,
                a_claim_that_cannot_be_right_is_refused,
            }
            parks {
                a_paused_queue_yields_nothing_until_it_is_resumed,
                each_scope_covers_its_lanes_and_no_others,
                nobody_parks_in_the_name_of_a_gate,
                removing_one_park_leaves_the_others,
                a_park_with_an_end_ends_by_itself,
                a_park_of_the_same_owner_replaces_the_earlier_one,
                a_park_covers_lanes_that_come_later_and_jobs_that_become_due,
                a_park_leaves_running_jobs_alone,
                a_snooze_can_park_its_scope_in_the_same_write,
                a_stale_snooze_parks_nothing,
                a_snooze_that_parks_an_unknown_queue_loses_nothing,
            }
            gates {
                waiting_for_a_gate_counts_for_nothing,
                a_gates_park_ends_when_the_first_of_its_jobs_may_come_back,
                a_job_that_comes_back_at_its_time_is_not_kept_by_one_that_was_refused_after_it,
                a_job_that_comes_back_after_a_restart_is_not_kept_either,
                a_job_that_was_put_off_alone_ends_no_park,
                after_a_refusal_one_job_asks_and_then_as_many_as_the_gate_said,
                a_job_whose_turn_has_come_is_ready_at_once,
                a_call_of_another_gate_or_of_long_ago_does_not_undo_a_refusal,
                who_was_called_before_it_was_put_off_asks_although_its_scope_is_closed,
                who_was_called_asks_although_another_is_refused_before_it,
                who_was_called_and_does_not_come_opens_nothing,
                what_keeps_one_group_waiting_leaves_its_connector_to_the_others,
                whoever_waits_for_a_gate_of_all_comes_in_time_though_its_group_was_refused_for_longer,
                those_who_are_back_come_before_those_who_have_not_asked,
                a_turn_leaves_other_waits_alone,
                a_turn_does_not_wake_a_job_that_its_handler_put_off,
                a_scope_does_not_wait_for_a_refused_job_that_was_cancelled,
            }
            leases {
                a_lost_lease_cannot_complete,
                a_ticket_is_good_for_one_settlement,
                made_up_tickets_are_refused,
                a_lease_is_settled_job_by_job,
                a_heartbeat_keeps_a_lease,
                a_lease_ends_on_time,
                late_but_before_the_rescue_still_counts,
                a_heartbeat_after_the_rescue_is_refused,
                lease_numbers_only_grow_also_over_restarts,
                a_stale_ticket_stays_stale_over_a_restart,
                a_held_job_is_still_held_after_a_restart_and_can_complete,
                a_lease_that_ended_while_the_store_was_down_is_rescued,
                a_stall_spends_no_attempt,
                two_workers_never_get_the_same_job,
                a_lease_of_another_length_is_honoured,
            }
            standing {
                a_standing_claim_gets_what_is_there_at_once,
                a_standing_claim_gets_what_comes_later,
                each_of_many_standing_claims_gets_one,
                a_claim_that_leaves_takes_nothing_with_it,
                a_claim_that_leaves_while_a_job_comes_gets_it_or_leaves_it_to_others,
                a_standing_claim_comes_back_when_a_delay_ends,
                a_standing_claim_hears_of_a_delay_that_was_set_later,
                a_standing_claim_is_refused_like_any_other,
                a_claim_that_has_stood_for_long_does_not_turn_the_clock_back,
                a_claim_that_stands_does_not_undo_a_step_back_of_the_clock,
                a_standing_claim_gets_what_another_that_comes_finds_due_for_it,
            }
            stalls {
                jobs_of_a_stalled_batch_run_one_at_a_time_per_process,
                a_stall_of_a_batch_counts_against_nobody,
                a_job_is_dead_after_its_third_lone_stall,
                the_last_chance_is_taken_alone_in_the_process,
                a_process_drains_before_it_runs_a_last_chance,
                a_poison_job_takes_no_innocent_with_it,
                a_suspect_that_ends_well_is_no_suspect_any_more,
                suspects_stay_suspects_over_a_restart,
            }
            control {
                a_waiting_job_is_cancelled_at_once,
                a_running_job_is_asked_to_stop,
                a_job_asked_to_stop_does_not_run_again,
                a_job_that_completes_in_spite_of_a_cancel_is_completed,
                a_finished_job_cannot_be_cancelled,
                cancelling_frees_room,
                run_now_makes_a_scheduled_job_ready,
                reprioritise_moves_a_job_in_every_open_state,
                a_finished_job_keeps_its_priority,
                reprioritised_back_and_forth_a_job_is_still_one_job,
            }
            outcomes {
                a_result_is_kept,
                a_result_that_is_too_large_is_not_kept,
                a_failure_is_tried_again_with_its_categorys_policy,
                each_category_has_its_own_counter,
                max_attempts_caps_the_sum_over_categories,
                permanent_failures_are_dead_at_once,
                a_jobs_own_policy_wins_over_its_kinds_and_the_categorys,
                the_error_history_is_bounded_and_keeps_the_newest,
                a_dead_letter_is_bounded_too,
                a_snooze_spends_no_attempt,
                a_job_that_snoozes_for_ever_is_dead_in_the_end,
                a_snooze_without_end_is_cut_to_ten_years,
                a_released_job_is_ready_again_and_spent_nothing,
                progress_and_log_lines_are_kept_within_bounds,
                a_stale_report_is_refused,
                outcomes_of_one_call_are_applied_together,
            }
            why {
                why_names_a_delay_a_retry_and_a_snooze_with_their_times,
                why_names_every_park_that_covers_a_job_the_longest_first,
                why_names_a_full_group_and_a_full_queue,
                why_names_the_limiter_and_when_it_is_free,
                why_names_what_is_ahead_and_what_is_next,
                why_names_a_suspect,
                why_names_who_runs_it_and_every_end,
                why_says_that_no_worker_serves_the_queue,
                why_does_not_guess_who_serves_a_queue,
                only_what_could_run_waits_for_a_worker,
            }
            feed {
                a_follower_hears_the_life_of_a_job,
                cancels_and_stalls_are_heard_of,
                a_follower_that_comes_back_gets_what_it_missed,
            }
            schedules {
                a_tick_is_fired_once_when_its_time_has_come,
                a_claim_fires_what_is_due,
                the_store_says_when_the_next_tick_comes,
                a_tick_during_a_run_is_skipped_unless_asked_otherwise,
                a_tick_during_a_run_can_wait_for_its_end,
                runs_can_overlap_up_to_a_bound,
                missed_ticks_are_made_up_for_as_asked,
                runs_that_are_made_up_for_come_one_after_the_other,
                a_clock_that_steps_fires_nothing_twice,
                a_schedule_waits_for_others_of_the_same_day,
                a_day_that_ends_without_the_other_is_skipped,
                a_recovered_run_counts_for_those_who_wait,
                other_times_begin_when_they_are_set,
                a_schedule_can_be_run_by_hand,
                runs_by_hand_are_bounded,
                a_cancelled_run_is_over,
                erasing_a_tenant_takes_its_schedules,
                a_tick_that_waits_for_an_erased_schedule_waits_no_longer,
                a_ledger_is_bounded_and_comes_in_pages,
                a_deleted_schedule_leaves_its_jobs,
                a_schedule_that_cannot_work_is_refused,
                a_payload_that_does_not_fit_its_kind_refuses_the_schedule,
                a_schedule_in_the_place_of_a_retired_one_begins_anew,
                many_schedules_that_are_due_together_are_all_fired,
                a_single_time_comes_once,
            }
            pauses {
                a_paused_schedule_skips_what_comes_and_says_so,
                what_was_missed_before_a_pause_is_not_put_down_to_it,
                a_tick_that_a_pause_kept_back_is_as_late_as_the_resume,
                other_times_of_a_paused_schedule_leave_no_tick_without_a_line,
            }
            records {
                a_record_is_kept_over_a_restart_until_it_is_deleted,
                a_record_is_forgotten_when_its_time_is_over,
                a_record_that_is_no_note_is_refused,
            }
            registry {
                a_payload_that_does_not_fit_its_kind_is_refused_with_its_place,
                defaults_of_a_schema_reach_the_worker,
                secrets_are_shown_to_nobody_but_the_worker,
                a_document_is_applied_whole_or_not_at_all,
                every_version_is_kept_and_can_be_restored,
                history_is_bounded_and_refusals_push_out_no_version,
                a_kind_runs_no_more_than_its_concurrency,
                a_kind_keeps_no_more_than_its_own_retention,
                a_kinds_retention_is_the_same_before_and_after_a_restart,
                who_names_a_policy_follows_it,
                a_registry_decides_for_categories_and_codes,
                a_rate_limit_after_two_network_failures_counts_in_its_own_category,
                a_registration_leaves_alone_what_a_document_described,
            }
            managed {
                a_documents_schedule_is_in_force_and_changed_by_it_alone,
                a_dropped_schedule_is_retired_and_comes_back_with_its_ledger,
                a_kind_that_its_document_drops_no_longer_runs_by_itself,
                a_kind_that_its_document_drops_is_not_enqueued_by_events,
                a_document_is_the_one_that_it_says_it_is,
                a_document_that_gets_a_name_keeps_what_it_had,
                a_document_takes_what_it_had_under_its_path_as_it_was_typed,
                a_path_that_ends_with_anothers_name_ends_nothing_of_it,
                a_document_elsewhere_is_another_one,
                what_changes_and_what_is_as_wanted_is_counted_alike,
                a_document_does_not_take_somebodys_own_schedule,
                schedules_of_a_document_wait_for_each_other,
                a_document_is_as_right_as_it_was_after_a_tenant_was_erased,
                a_schedule_that_cannot_work_refuses_its_document,
                a_scheduled_payload_is_filled_and_its_secrets_are_not_shown,
                a_document_that_was_shown_can_be_applied_again,
                a_difference_shows_nothing_that_either_version_hides,
                the_store_says_how_late_its_schedules_are,
            }
            search {
                search_finds_jobs_in_every_state,
                search_narrows_by_every_field,
                text_is_taken_literally,
                text_is_found_in_errors_and_in_replaced_payloads,
                paging_shows_every_job_once_while_jobs_come_and_go,
                a_page_is_bounded,
                dead_letters_are_found_by_review,
                found_and_read_together_a_job_is_what_it_is_alone,
            }
            letters {
                recovering_twice_yields_one_job,
                a_recovered_job_starts_afresh_and_knows_its_origin,
                a_letter_and_the_job_in_its_place_name_each_other,
                only_dead_letters_are_recovered,
                a_letter_is_resolved_once,
                what_is_not_dead_cannot_be_resolved,
                a_recovered_job_can_die_and_be_recovered_again,
                more_letters_than_are_read_together_are_recovered_once_each,
            }
            processor {
                two_hundred_letters_end_as_the_rules_say,
                what_was_enqueued_again_is_not_retried,
                a_line_of_recoveries_is_retried_three_times,
                a_tenant_is_asked_once_reminded_daily_and_heard,
                a_tenant_that_authorized_is_asked_anew_on_the_same_day,
                a_grant_is_seen_to_from_where_it_stopped,
                nobody_authorizes_for_seven_days,
                two_processors_at_once_do_each_letter_once,
                a_run_comes_round_and_goes_on_where_it_stopped,
                letters_that_too_many_wait_for_are_retried_in_portions,
                letters_of_one_cause_are_one_row,
                a_recovered_letter_keeps_its_kinds_limit,
                a_successor_that_was_pruned_had_completed,
            }
            flows {
                a_job_waits_until_all_it_waits_for_are_completed,
                a_whole_flow_is_one_enqueue_in_any_order,
                a_hastened_job_is_found_when_it_is_released,
                a_circle_is_refused_and_nothing_is_stored,
                an_unknown_dependency_is_refused_and_nothing_is_stored,
                a_tenants_job_waits_for_that_tenants_alone,
                what_is_completed_already_is_not_waited_for,
                a_dead_dependency_fails_is_ignored_or_waited_for,
                a_cancelled_dependency_is_as_good_as_dead,
                what_is_dead_already_decides_at_once,
                death_goes_on_from_one_to_the_next,
                a_recovered_dependency_releases_who_waited,
                recovered_together_a_flow_runs_in_its_order,
                a_recovered_job_waits_only_for_what_was_not_finished,
                a_delay_counts_after_the_dependencies,
                a_released_job_ages_from_its_release,
                a_key_is_held_while_blocked,
                who_waits_for_a_kept_job_waits_for_the_one_that_holds_the_key,
                cancelling_a_blocked_job_lets_the_others_be,
                a_cancel_cascades_if_asked,
                a_blocked_job_cannot_be_run_now_but_reprioritised,
                results_of_dependencies_are_seen_page_by_page,
                results_outlive_the_job_that_made_them_while_somebody_waits,
                why_names_what_a_blocked_job_waits_for,
                blocked_jobs_are_found_and_counted,
                a_flow_goes_on_after_a_restart_at_every_step,
                erasing_what_is_waited_for_leaves_nobody_waiting,
                a_purged_letter_leaves_nobody_waiting,
                a_stale_completion_releases_nobody,
                sizes_of_flows_are_bounded,
                the_dependents_of_a_job_are_bounded_whatever_it_is_called,
                a_cascade_from_a_finished_job_leaves_who_waits_for_others,
                a_full_queue_refuses_who_waits_for_nobody_any_more,
                a_death_that_goes_far_is_told_in_portions,
                a_release_that_is_too_wide_for_a_commit_goes_on_in_the_next,
                a_recovered_job_waits_for_what_was_pruned_before_anybody_was_told,
                what_nobody_has_been_told_of_can_be_recovered_and_erased,
                erasing_a_tenant_takes_the_results_that_were_kept,
                a_large_batch_of_completions_releases_all_that_waited,
            }
            upkeep {
                retention_by_count_keeps_the_newest,
                retention_by_age_takes_completed_and_cancelled_jobs,
                dead_letters_are_kept_thirty_days_whatever_the_count,
                pruning_one_queue_leaves_the_others,
                erasing_a_tenant_takes_all_its_jobs_and_no_others,
                erasing_frees_the_places_of_running_jobs,
                erasing_a_tenant_that_never_was_is_fine,
                counts_agree_with_what_search_finds,
                the_registry_lists_what_was_put_and_survives_a_restart,
                a_queue_view_says_how_old_and_how_fast,
                a_queue_view_says_what_failed_how_long_it_took_and_what_stalled,
                a_process_counts_what_it_did,
            }
            clock {
                after_a_step_back_a_lease_ends_within_its_length,
                after_a_step_back_over_a_restart_a_lease_ends_within_its_length,
                after_a_step_back_a_holder_goes_on,
                after_a_step_back_the_limiter_is_free_within_a_window,
                after_a_step_back_over_a_restart_the_limiter_is_free_within_a_window,
                a_ready_job_stays_ready_when_the_clock_goes_back,
                readings_slightly_out_of_order_are_taken_as_standing_still,
            }
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($open:path; $($subject:ident { $($case:ident,)* })*) => {
        $($(
            #[tokio::test]
            async fn $case() {
                let mut world = $crate::World::new($open().await).await;
                if world.applies(stringify!($case)) {
                    $crate::cases::$subject::$case(&mut world).await;
                }
            }
        )*)*
    };
}

#[cfg(test)]
mod tests {
    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed_in_the_suite() {
        let list = include_str!("lib.rs");
        let sources = [
            include_str!("cases/enqueue.rs"),
            include_str!("cases/unique.rs"),
            include_str!("cases/order.rs"),
            include_str!("cases/limits.rs"),
            include_str!("cases/parks.rs"),
            include_str!("cases/gates.rs"),
            include_str!("cases/leases.rs"),
            include_str!("cases/standing.rs"),
            include_str!("cases/stalls.rs"),
            include_str!("cases/control.rs"),
            include_str!("cases/outcomes.rs"),
            include_str!("cases/why.rs"),
            include_str!("cases/registry.rs"),
            include_str!("cases/managed.rs"),
            include_str!("cases/search.rs"),
            include_str!("cases/letters.rs"),
            include_str!("cases/flows.rs"),
            include_str!("cases/upkeep.rs"),
            include_str!("cases/clock.rs"),
            include_str!("cases/schedules.rs"),
            include_str!("cases/pauses.rs"),
        ];
        let mut cases = 0;
        for line in sources.iter().flat_map(|s| s.lines()) {
            let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
            let name = rest.split('(').next().unwrap_or_default();
            assert_eq!(list.matches(&format!(" {name},\n")).count(), 1, "{name} must be listed once");
            cases += 1;
        }
        assert!(cases >= 60, "{cases} cases");
    }
}
