//! Handlers of kinds without a type.

use tidegate::{Context, KindSettings, QueueName, Worker, codes, done, done_with, testing};

fn settings(queue: &str) -> KindSettings {
    KindSettings::new(QueueName::new(queue).unwrap())
}

#[test]
fn an_untyped_handler_reads_the_payload_itself_and_its_kind_is_registered() {
    testing::block_on(async {
        let tide = testing::tide();
        let worker = |tide: &tidegate::Tidegate| {
            Worker::new(tide).handle_kind("echo", Some(settings("night")), async |cx: Context| {
                done_with(cx.payload().as_str().len())
            })
        };
        tide.run(worker(&tide)).await;
        let job = tide.enqueue_json("echo", "{\"a\": 1}").await.unwrap();
        assert_eq!(tide.run(worker(&tide)).await.completed, 1);
        let job = tide.job(job.id).await.unwrap().unwrap();
        assert_eq!((job.queue.as_str(), job.result.unwrap().as_str()), ("night", "8"));
    });
}

#[test]
fn without_settings_the_kind_must_be_registered_and_stays_as_it_is() {
    testing::block_on(async {
        let tide = testing::tide();
        let worker = |tide: &tidegate::Tidegate| {
            Worker::new(tide).handle_kind("echo", None, async |_: Context| done())
        };
        let refused = worker(&tide).run_until_idle().await.unwrap_err();
        assert_eq!(refused.code, codes::UNKNOWN_KIND);

        let own = KindSettings { timeout_ms: 1_234, ..settings("night") };
        tide.store().ensure_queue(own.queue.clone(), tide.now()).await.unwrap();
        tide.store().put_kind("echo".parse().unwrap(), own.clone()).await.unwrap();
        tide.enqueue_json("echo", "1").await.unwrap();
        assert_eq!(tide.run(worker(&tide)).await.completed, 1, "its queue is served");
        assert_eq!(tide.store().kinds().await.unwrap()[0].settings, own);
    });
}

#[test]
fn two_handlers_of_one_kind_and_bad_names_are_refused() {
    testing::block_on(async {
        let tide = testing::tide();
        let twice = Worker::new(&tide)
            .handle_kind("echo", Some(settings("q")), async |_: Context| done())
            .handle_kind("echo", Some(settings("q")), async |_: Context| done());
        assert_eq!(twice.run_until_idle().await.unwrap_err().code, codes::HANDLERS_MISSING);
        let bad = Worker::new(&tide).handle_kind("no good", None, async |_: Context| done());
        assert_eq!(bad.run_until_idle().await.unwrap_err().code, codes::INVALID_NAME);
    });
}
