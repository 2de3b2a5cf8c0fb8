package shardmill;

import java.util.concurrent.CountDownLatch;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.leases.LeaseManagementConfig;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * An application of the KCL 3 that writes down what it has processed, until SIGTERM.
 *
 * <p>Endpoints, region and credentials are the environment's, as for every AWS SDK. Everything that decides what is in
 * the tables is the KCL's default; times are shorter, so that nobody waits for minutes.
 */
final class Application {
    private Application() {}

    public static void main(String[] arguments) throws Exception {
        Options options = Options.parse(arguments);
        Journal journal = new Journal(options.journal());
        Stop stop = new Stop();

        // Not HTTP/2, which nothing but Kinesis itself speaks without TLS.
        NettyNioAsyncHttpClient.Builder http =
                NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1).maxConcurrency(50);
        KinesisAsyncClient kinesis = KinesisAsyncClient.builder().httpClientBuilder(http).build();
        DynamoDbAsyncClient dynamoDb = DynamoDbAsyncClient.create();
        // Never called: metrics are off.
        CloudWatchAsyncClient cloudWatch = CloudWatchAsyncClient.create();

        InitialPositionInStreamExtended oldest =
                InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);
        ConfigsBuilder configs = new ConfigsBuilder(
                new SingleStreamTracker(options.stream(), oldest),
                options.application(),
                kinesis,
                dynamoDb,
                cloudWatch,
                options.worker(),
                () -> new Processor(options, journal, stop));
        Scheduler scheduler = new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig()
                        .parentShardPollIntervalMillis(500)
                        .schedulerInitializationBackoffTimeMillis(200)
                        .shardConsumerDispatchPollIntervalMillis(100),
                leases(configs, options),
                configs.lifecycleConfig().taskBackoffTimeMillis(200),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig()
                        .retrievalSpecificConfig(new PollingConfig(options.stream(), kinesis)
                                .maxRecords(100)
                                .idleTimeBetweenReadsInMillis(200)));

        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop.request();
            int status = 1;
            try {
                if (scheduler.startGracefulShutdown().get()) {
                    ended.await();
                    status = 0;
                } else {
                    System.err.println("the KCL did not stop gracefully");
                }
            } catch (Exception exception) {
                exception.printStackTrace();
            }
            // Else the status would be the signal's.
            Runtime.getRuntime().halt(status);
        }));
        try {
            scheduler.run();
            ended.countDown();
        } catch (RuntimeException exception) {
            exception.printStackTrace();
            // Not the hook, and none of the KCL's threads.
            Runtime.getRuntime().halt(1);
        }
    }

    private static LeaseManagementConfig leases(ConfigsBuilder configs, Options options) {
        LeaseManagementConfig leases = configs.leaseManagementConfig()
                .failoverTimeMillis(options.failoverMillis())
                .leaseAssignmentIntervalMillis(500L)
                .shardSyncIntervalMillis(1_000)
                .leasesRecoveryAuditorExecutionFrequencyMillis(1_000)
                .listShardsCacheAllowedAgeInSeconds(1)
                .dynamoDbLockBasedLeaderLeaseDurationInMillis(3_000)
                .dynamoDbLockBasedLeaderHeartbeatPeriodInMillis(500);
        leases.workerUtilizationAwareAssignmentConfig()
                .inMemoryWorkerMetricsCaptureFrequencyMillis(100)
                .workerMetricsReporterFreqInMillis(1_000);
        return leases;
    }
}
