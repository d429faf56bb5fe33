import type { IRunSource } from '../../store/source';

const HELLO_WITHIN = 5000;

/** Resolves when a run has said what it is or will not say it any more, after five seconds at the latest. */
export async function helloOf(source: IRunSource): Promise<void> {
  if (source.hello !== null || source.connection.kind === 'closed') {
    return;
  }
  await new Promise<void>(resolve => {
    const done = () => {
      clearTimeout(timer);
      source.changed.disconnect(look);
      resolve();
    };
    const look = () => {
      if (source.hello !== null || source.connection.kind === 'closed') {
        done();
      }
    };
    const timer = setTimeout(done, HELLO_WITHIN);
    source.changed.connect(look);
  });
}
