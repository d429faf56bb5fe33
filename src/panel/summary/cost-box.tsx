import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes, formatInteger } from '../../charts/format';
import type { Budget, Status } from '../../protocol/messages.generated';
import { authorText } from '../shell/author-text';
import type { IOpenRun } from '../shell/open-run';
import { NumberInput } from '../trace/schema-form';
import { PanelButton } from '../shell/panel-button';

/** Per cent of step time above which the overhead is shown as a warning where no budget is set: the tracer's own promise. */
const PROMISE = 1;
const BOX = 'jp-Megalens-cost';

interface ICostProps {
  open: IOpenRun;
  trans: TranslationBundle;
}

/** What tracing costs, in amber past its budget; opens to what costs and what was given up. */
export function CostTerm({ open, trans }: ICostProps): React.ReactElement | null {
  const { cost, control, source } = open;
  const measured = measuredOf(source.status);
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
      <span className="jp-MegalensTerm-value" style={{ minWidth: '13ch' }}>
        {measured === null
          ? trans.__('not measured yet')
          : trans.__('%1 % ± %2', measured.percent.toFixed(1), half(measured).toFixed(1))}
      </span>
    </button>
  );
}

/** The budget, what costs and what was given up for it, once somebody asks. */
export function CostBox({ open, trans }: ICostProps): React.ReactElement | null {
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
          : trans.__(
              'Budget %1 % of step time%2.',
              limit,
              who === '' ? '' : `, ${trans.__('set %1', who)}`
            )}{' '}
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
  const [wish, setWish] = React.useState(limit ?? PROMISE);
  const busy = control.asked('budget').kind === 'sent';
  const same = wish === limit;
  return (
    <form
      className="jp-MegalensControls-line"
      onSubmit={event => {
        event.preventDefault();
        if (!busy && !same) {
          void control.setBudget(wish);
        }
      }}
    >
      <label htmlFor="jp-Megalens-budget">{trans.__('Budget, %')}</label>
      <NumberInput
        id="jp-Megalens-budget"
        value={wish}
        minimum={0.01}
        maximum={100}
        whole={false}
        change={value => value !== null && setWish(value)}
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

interface IMeasured {
  readonly percent: number;
  readonly low: number;
  readonly high: number;
}

/** The comparison of traced and untraced steps where there is one, else the tracer's own count. */
function measuredOf(status: Status | null): IMeasured | null {
  const { percent, low, high } = status?.budget ?? {};
  return percent !== undefined && low !== undefined && high !== undefined
    ? { percent, low, high }
    : (status?.overhead ?? null);
}

/** What of the overhead other processes than the training's pay: it makes no step longer, so that it is no reason to warn. */
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

function half({ low, high }: IMeasured): number {
  return Math.max(0, (high - low) / 2);
}
