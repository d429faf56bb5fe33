import { RealHub, RealProducer, announcement, until } from '../../../client/__tests__/real-hub';
import type { Config, Configured } from '../../../protocol/messages.generated';
import { LiveRun } from '../../../store/live-run';
import { openRun, partsOf, type IOpenRun } from '../../shell/open-run';
import { JOB } from '../../shell/__tests__/memory-job';

const closers: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) {
    await close();
  }
});

/** A viewer of the run as a page has it. */
async function look(hub: RealHub, user: string): Promise<IOpenRun> {
  const source = new LiveRun({
    openSocket: hub.opener(),
    peer: { name: 'panel', version: '0', user }
  });
  const open = openRun('run-1', source);
  closers.push(() => {
    partsOf(open).forEach(part => part.dispose());
    source.dispose();
  });
  await until(() => source.hello !== null && source.hello.model !== null, `${user} sees the run`);
  return open;
}

/** A training that does what it is asked, at once. */
async function obey(hub: RealHub): Promise<RealProducer> {
  const { controls, flags, sites } = JOB;
  const producer = await RealProducer.join(hub, { ...announcement(), controls, flags, sites });
  closers.push(() => producer.close());
  const config: Config = { flags: {} };
  producer.onConfigure = ({ id, patch }) => {
    Object.assign(config.flags, patch.flags);
    if (patch.mode !== undefined) {
      config.mode = { paused: patch.mode.paused === true };
      producer.say({ type: 'status', state: config.mode.paused ? 'paused' : 'training', step: 4 });
    }
    const answer: Configured = {
      type: 'configured',
      id,
      applied: false,
      step: 5,
      config: structuredClone(config)
    };
    producer.say(answer);
    producer.say({ ...answer, applied: true });
  };
  return producer;
}

it('who paused a run is known to those who look and to those who come later', async () => {
  const hub = await RealHub.start();
  closers.push(() => hub.stop());
  await obey(hub);
  const ada = await look(hub, 'Ada');
  const bob = await look(hub, 'Bob');
  await ada.control.setMode({ paused: true });
  expect(ada.control.author('mode')).toMatchObject({ here: true, step: 5 });
  await until(() => bob.control.paused, 'Bob sees the pause');
  expect(bob.control.author('mode')).toMatchObject({ who: 'Ada', here: false });
  const eve = await look(hub, 'Eve');
  await until(() => eve.source.status?.state === 'paused', 'Eve sees the pause');
  await until(() => eve.control.author('mode') !== null, 'Eve learns who made it');
  expect(eve.control.author('mode')).toMatchObject({ who: 'Ada', here: false, step: 5 });
  await eve.control.setMode({ paused: false });
  await until(() => !bob.control.paused && !ada.control.paused, 'all see it go on');
});

it('a viewer that asks for change after change leaves the others’ edits alone', async () => {
  const hub = await RealHub.start();
  closers.push(() => hub.stop());
  await obey(hub);
  const [ada, bob] = [await look(hub, 'Ada'), await look(hub, 'Bob')];
  bob.trace.toggle('QKV_mat_mul', true);
  bob.trace.change('QKV_mat_mul', { layers: '2' });
  let told = 0;
  bob.trace.changed.connect(() => told++);
  const began = Date.now();
  let last = 0;
  for (let every = 1; every <= 1000; every++) {
    // Those beyond the hub's bound are refused; each that is taken is told to everybody.
    void ada.source.configure({ flags: { MLP1_mat_mul: { compressor: { name: 'NoOp' }, every } } }).then(
      ({ config }) => (last = config.flags['MLP1_mat_mul']?.every ?? last),
      () => undefined
    );
  }
  await until(() => last > 0, 'a change is applied');
  await ada.source
    .configure({ flags: { MLP1_mat_mul: { compressor: { name: 'NoOp' }, every: 7 } } })
    .catch(() => undefined);
  await until(
    () => bob.trace.config.flags['MLP1_mat_mul']?.every === ada.trace.config.flags['MLP1_mat_mul']?.every,
    'both see the same'
  );
  expect(told).toBeLessThanOrEqual(2 + (Date.now() - began) / 100);
  expect(bob.trace.foreign?.by?.user).toBe('Ada');
  expect(bob.trace.rows.find(({ info }) => info.name === 'QKV_mat_mul')).toMatchObject({
    edited: true,
    setting: { layers: '2' }
  });
});
