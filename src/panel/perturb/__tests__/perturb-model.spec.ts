/** @jest-environment ./jest.environment.node.js */
import { ProtocolError } from '../../../protocol/protocol-error';
import { ControlModel } from '../../summary/control-model';
import { PerturbModel } from '../perturb-model';
import { perturbText } from '../../../views/shared/perturb-text';
import { JOB } from '../../shell/__tests__/memory-job';
import { ControlledRun } from '../../shell/__tests__/controlled-run';

function form(): { run: ControlledRun; perturb: PerturbModel } {
  const run = new ControlledRun(structuredClone(JOB));
  return { run, perturb: new PerturbModel(run, new ControlModel(run)) };
}

describe('PerturbModel', () => {
  it('offers the sites of hello, and greys what the model lacks', () => {
    const { perturb } = form();
    expect(perturb.rows.map(row => [row.info.name, row.available])).toEqual([
      ['calculation', true],
      ['weight', false]
    ]);
    expect(perturb.ready).toBe(false);
  });

  it('arms what the form says, with the schema’s defaults, and disarms it', async () => {
    const { run, perturb } = form();
    perturb.toggle('calculation', true);
    perturb.changeParameter('calculation', 'coefficient', 0.1);
    perturb.change('calculation', { layers: '2-3' });
    perturb.seed = 7;
    perturb.steps = 50;
    await perturb.arm();
    expect(run.patches[0]).toEqual({
      flags: {},
      perturb: {
        sites: {
          calculation: {
            kind: { name: 'noise1', params: { coefficient: 0.1 } },
            layers: '2-3',
            phases: ['train']
          }
        },
        seed: 7,
        steps: 50
      }
    });
    expect(perturb.armed?.until).toBe(1292);
    expect(perturb.left).toBe(1292 - 1240);
    expect(perturbText(perturb.armed!, JOB.sites!)).toBe(
      'MLP output: Additive Gaussian noise, coefficient 0.1, layers 2-3'
    );
    await perturb.disarm();
    expect(run.patches[1]).toEqual({ flags: {}, perturb: null });
    expect(perturb.armed).toBeNull();
  });

  it('is over when its last step is past, also before anybody says so, and when the training is', async () => {
    const { run, perturb } = form();
    perturb.toggle('calculation', true);
    await perturb.arm();
    run.status = { type: 'status', state: 'training', step: 1342, perturbed_steps: 100 };
    expect(perturb.armed).not.toBeNull();
    run.status = { type: 'status', state: 'training', step: 1343, perturbed_steps: 100 };
    expect(perturb.armed).toBeNull();
    expect(perturb.touched).toBe(100);
    run.status = { type: 'status', state: 'finished', step: 1300 };
    expect(perturb.armed).toBeNull();
  });

  it('stays armed while the link to the hub is broken', async () => {
    const { run, perturb } = form();
    perturb.toggle('calculation', true);
    await perturb.arm();
    run.connection = { kind: 'reconnecting', attempt: 1, message: '' };
    expect(perturb.armed).not.toBeNull();
    expect(perturb.writable).toBe(false);
  });

  it('keeps the form while somebody else arms and disarms', () => {
    const { run, perturb } = form();
    perturb.toggle('calculation', true);
    perturb.chooseKind('calculation', 'bit_flip');
    const other = { sites: { calculation: { kind: { name: 'noise1' } } }, seed: 3 };
    for (const perturbation of [other, null]) {
      const message = run.configured({ flags: {}, perturb: perturbation }, 'kernel-1');
      run.changed.emit({ kind: 'configured', message });
    }
    expect(perturb.value.sites['calculation']?.kind).toEqual({ name: 'bit_flip', params: { bit: 'any' } });
    perturb.toggle('calculation', false);
    perturb.toggle('calculation', true);
    expect(perturb.value.sites['calculation']?.kind.name).toBe('bit_flip');
  });

  it('puts a refusal at the field that the hub named, until it is edited', async () => {
    const { run, perturb } = form();
    run.answer = () =>
      Promise.reject(
        new ProtocolError('bad-parameter', 'Too much.', {
          field: 'perturb.sites.calculation.kind.params.coefficient'
        })
      );
    perturb.toggle('calculation', true);
    await perturb.arm();
    expect(perturb.rows[0]?.faults).toEqual(
      new Map([['kind.params.coefficient', { message: 'Too much.', column: null }]])
    );
    perturb.changeParameter('calculation', 'coefficient', 0.1);
    expect(perturb.rows[0]?.faults.size).toBe(0);
  });
});
