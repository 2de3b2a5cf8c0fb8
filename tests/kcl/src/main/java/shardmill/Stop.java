package shardmill;

import java.util.concurrent.CountDownLatch;

/** Whether the application has been asked to stop. */
final class Stop {
    private final CountDownLatch requested = new CountDownLatch(1);

    void request() {
        requested.countDown();
    }

    boolean isRequested() {
        return requested.getCount() == 0;
    }

    void await() throws InterruptedException {
        requested.await();
    }
}
