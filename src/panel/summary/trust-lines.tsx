import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes, formatInteger } from '../../charts/format';
import type { Budget, Status, SilentProbes } from '../../protocol/messages.generated';
import { flagWords } from '../../views/shared/describe';
import { meaningOf } from '../../views/shared/glossary';
import { layerWords } from '../../views/shared/layers';
import { halfOf, measuredCost } from '../../views/shared/measured-cost';
import { authorText } from '../shell/notice';
import type { IOpenRun } from '../shell/open-run';
import type { PanelModel } from '../shell/panel-model';
import { PanelButton, Term } from '../shell/section';
import { NumberInput } from '../trace/schema-form';
import { translateBy } from '../../views/shared/translate';

/** Overhead in % of step time shown as a warning where no budget is set: the tracer's own promise. */
const PROMISE = 1;
const BOX = 'jp-Megalens-cost';

interface ICostProps {
  open: IOpenRun;
  trans: TranslationBundle;
}

/** What tracing costs, in amber past its budget; opens to what costs and what was given up. */
function CostTerm({ open, trans }: ICostProps): React.ReactElement | null {
  const { cost, control, source } = open;
  const measured = measuredCost(source.status);
  if (measured === null && !takesBudget(open)) {
    return null;
  }
  const limit = source.status?.budget?.limit ?? control.config.budget ?? PROMISE;
  const over =
    source.status?.budget?.state === 'over' ||
    (measured !== null && measured.low - elsewhere(source.status) > limit);
  return (
    <button
      type="button"
      className={`jp-MegalensTerm jp-MegalensCost-term${over ? ' jp-mod-warn' : ''}`}
      aria-expanded={cost.open}
      aria-controls={BOX}
      title={
        trans.__(
          'Share of step time that tracing costs, measured in this run, with a 95 % interval. Opens to what costs and to its budget.'
        ) + splitText(source.status, trans)
      }
      onClick={() => cost.toggle()}
    >
      <span className="jp-MegalensTerm-name">{trans.__('overhead')} </span>
      <span className="jp-MegalensTerm-value">
        {measured === null
          ? trans.__('not measured yet')
          : trans.__('%1 % ± %2', measured.percent.toFixed(1), halfOf(measured).toFixed(1))}
      </span>
    </button>
  );
}

/** The budget, what costs and what was given up for it, once somebody asks. */
function CostBox({ open, trans }: ICostProps): React.ReactElement | null {
  const { cost, control, source, trace } = open;
  if (!cost.open) {
    return null;
  }
  const budget = source.status?.budget;
  const limit = control.config.budget ?? null;
  const asked = control.asked('budget');
  const who = authorText(control.author('budget'), trans);
  const costs = trace.costs;
  return (
    <div id={BOX} className="jp-MegalensCost">
      {takesBudget(open) && <BudgetForm key={String(limit)} limit={limit} open={open} trans={trans} />}
      {asked.kind === 'refused' && (
        <p className="jp-MegalensField-fault" role="alert">
          {trans.__('The budget was not changed. %1', asked.message)}
        </p>
      )}
      <p>
        {limit === null
          ? trans.__('No budget: what is traced is never thinned out.')
          : who === ''
            ? trans.__('Budget %1 % of step time.', limit)
            : trans.__('Budget %1 % of step time, set %2.', limit, who)}{' '}
        {budget !== undefined && budgetText(budget, trans)}
      </p>
      {costs.length > 0 && (
        <>
          <p>{trans.__('What is sent, largest first:')}</p>
          <ul>
            {costs.map(({ name, title, bytes }) => (
              <li key={name} title={name}>
                {title}{' '}
                {bytes === null ? trans.__('size not known yet') : trans.__('≈ %1/step', formatBytes(bytes))}
              </li>
            ))}
          </ul>
        </>
      )}
      {budget !== undefined && budget.gave_up.length > 0 ? (
        <>
          <p>{trans.__('Left out to stay within the budget:')}</p>
          <ol>
            {budget.gave_up.map(sentence => (
              <li key={sentence}>{sentence}</li>
            ))}
          </ol>
        </>
      ) : (
        limit !== null && <p>{trans.__('Nothing was left out.')}</p>
      )}
    </div>
  );
}

function BudgetForm(props: { limit: number | null } & ICostProps): React.ReactElement {
  const { limit, trans } = props;
  const { control } = props.open;
  const [request, setRequest] = React.useState(limit ?? PROMISE);
  const busy = control.asked('budget').kind === 'sent';
  const same = request === limit;
  return (
    <form
      className="jp-MegalensControls-line"
      onSubmit={event => {
        event.preventDefault();
        if (!busy && !same) {
          void control.setBudget(request);
        }
      }}
    >
      <label htmlFor="jp-Megalens-budget">{trans.__('Budget, %')}</label>
      <NumberInput
        id="jp-Megalens-budget"
        value={request}
        minimum={0.01}
        maximum={100}
        whole={false}
        change={value => value !== null && setRequest(value)}
      />
      <button type="submit" className="jp-MegalensButton" aria-disabled={busy || same}>
        {trans.__('Set')}
      </button>
      <PanelButton idle={busy || limit === null} act={() => void control.setBudget(null)}>
        {trans.__('Clear')}
      </PanelButton>
    </form>
  );
}

function budgetText(budget: Budget, trans: TranslationBundle): string {
  const steps = formatInteger(budget.steps ?? 0);
  switch (budget.state) {
    case 'measuring':
      return trans.__('Measuring: %1 steps compared so far.', steps);
    case 'inside':
      return trans.__('Within the budget, measured over %1 steps.', steps);
    case 'over':
      return trans.__('Over the budget, and nothing more can be left out. Trace fewer flags or layers.');
  }
}

/** Whether a tracer of ours is there to keep a budget. */
function takesBudget({ control, source }: IOpenRun): boolean {
  return control.writable && source.hello?.origin === undefined;
}

/** Overhead paid by other processes than the training's; it makes no step longer, so it is no warning. */
function elsewhere(status: Status | null): number {
  const { hub = 0, recorder = 0 } = (status?.budget?.percent === undefined && status?.overhead) || {};
  return hub + recorder;
}

function splitText(status: Status | null, trans: TranslationBundle): string {
  const { training, producer, hub, recorder } = status?.overhead ?? {};
  const text = (percent = 0): string => percent.toFixed(1);
  return training === undefined
    ? ''
    : ` ${trans.__('By their own clocks: training thread %1 %, producer %2 %, hub %3 %, recorder %4 %.', text(training), text(producer), text(hub), text(recorder))}`;
}

/** What a recording takes, and what it may. */
function sizeText(
  { bytes, limit_bytes: limit }: NonNullable<Status['recording']>,
  trans: TranslationBundle
): string {
  const size = bytes === undefined ? '' : formatBytes(bytes);
  return limit === undefined ? size : trans.__('%1 of %2', size, formatBytes(limit));
}

/** Probes that did not fire, by reason; of a tracer that gives none, without. */
function silentProbes({ probes }: Status): readonly SilentProbes[] {
  const groups = probes?.reasons ?? [{ reason: '', missing: probes?.missing ?? [] }];
  return groups.filter(({ missing }) => missing.length > 0);
}

/** How far the numbers can be trusted, and what tracing costs. */
export function TrustLines(props: { status: Status; model: PanelModel; open: IOpenRun }): React.ReactElement {
  const { status, model, open } = props;
  const { trans } = model;
  const t = translateBy(trans);
  const { probes, compiled, dropped, nonfinite, recording } = status;
  const lost = dropped === undefined ? 0 : dropped.producer + dropped.viewer + dropped.recorder;
  return (
    <>
      <CostTerm open={open} trans={trans} />
      <CostBox open={open} trans={trans} />
      {probes !== undefined && (
        <Term
          name={trans.__('probes')}
          value={`${formatInteger(probes.fired)}/${formatInteger(probes.expected)}`}
          warn={probes.fired < probes.expected}
          title={
            probes.missing.length > 0
              ? trans.__('Did not fire in the last traced step: %1', probes.missing.join(', '))
              : meaningOf('probes', t)
          }
        />
      )}
      {status.bytes_per_step !== undefined && status.bytes_per_step > 0 && (
        <Term
          name={trans.__('sent')}
          value={trans.__('%1/step', formatBytes(status.bytes_per_step))}
          title={trans.__('Measured size of the last frames')}
        />
      )}
      {silentProbes(status).map(({ missing, reason }) => (
        <p key={reason} className="jp-MegalensFigures-warning">
          {reason === ''
            ? trans.__('Did not fire: %1', missing.join(', '))
            : trans.__('Did not fire: %1 (%2)', missing.join(', '), reason)}
        </p>
      ))}
      {compiled !== undefined && (
        <Term
          name={trans.__('compiled again')}
          value={formatInteger(compiled.again)}
          title={trans.__(
            'Code with probes was compiled %1 times since tracing began, %2 of these because its inputs were of another kind. A change of what is traced has nothing compiled.',
            formatInteger(compiled.times),
            formatInteger(compiled.again)
          )}
        />
      )}
      {dropped !== undefined && (
        <Term
          name={trans.__('dropped')}
          value={formatInteger(lost)}
          warn={lost > 0}
          title={trans.__(
            'Rows dropped: %1 by the tracer, %2 on the way to this page, %3 by the recording',
            formatInteger(dropped.producer),
            formatInteger(dropped.viewer),
            formatInteger(dropped.recorder)
          )}
        />
      )}
      {nonfinite !== undefined && nonfinite.count === 0 && nonfinite.moments === undefined && (
        <Term name={trans.__('non-finite')} value="0" />
      )}
      {nonfinite !== undefined && nonfinite.count > 0 && (
        <button
          type="button"
          className="jp-MegalensNonFinite"
          disabled={nonfinite.first === undefined}
          onClick={() => void model.openNonFinite()}
        >
          {nonfinite.first === undefined
            ? trans.__('non-finite %1', formatInteger(nonfinite.count))
            : trans.__(
                'non-finite %1, first at step %2, %3, %4',
                formatInteger(nonfinite.count),
                formatInteger(nonfinite.first.step),
                layerWords([nonfinite.first.layer], t),
                flagWords(open.source.hello, nonfinite.first.flag, null, t)
              )}
        </button>
      )}
      {nonfinite?.moments !== undefined && (
        <button
          type="button"
          className="jp-MegalensNonFinite"
          onClick={() => void model.openNonFinite('moments')}
        >
          {trans.__(
            'non-finite in statistics %1, first at step %2, %3',
            formatInteger(nonfinite.moments.count),
            formatInteger(nonfinite.moments.first.step),
            nonfinite.moments.first.name
          )}
        </button>
      )}
      {recording?.state === 'on' && open.trace.writable && (
        <Term
          name={trans.__('recording')}
          value={sizeText(recording, trans)}
          title={
            recording.message ??
            (recording.limit_bytes === undefined
              ? trans.__('What the recording takes on the disk; it is not bounded')
              : trans.__(
                  'What the recording takes on the disk, and what it may: then its oldest steps are given up'
                ))
          }
        />
      )}
      {recording?.state === 'failed' && (
        <p className="jp-MegalensFigures-warning" role="status">
          {recording.message ?? trans.__('The recording failed; what was written until then can be read.')}
        </p>
      )}
    </>
  );
}
