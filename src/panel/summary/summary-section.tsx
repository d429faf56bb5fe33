import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { runLabel } from '../../client/run-reader';
import { formatCount, formatInteger, formatNumber } from '../../charts/format';
import type { LoggedStatistics, Origin, RankState } from '../../protocol/messages.generated';
import { NoticeBox, Section, Term } from '../shell/section';
import type { IOpenRun } from '../shell/open-run';
import type { PanelModel } from '../shell/panel-model';
import { DIALECTS } from '../runs/hub-form';
import { layoutText, rankName, rankText, stagesOf, troubledRanks, type IRank, type IStage } from './ranks';
import { TrainingControls } from './training-controls';
import { TrustLines } from './trust-lines';
import type { ISpark } from './summary-model';
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';

/** What is logged and how often, such as `gradients every step`, the most frequent first. */
export function statisticsTexts(logged: LoggedStatistics | undefined, trans: TranslationBundle): string[] {
  const names: Record<keyof LoggedStatistics, string> = {
    param: trans.__('parameters'),
    grad: trans.__('gradients'),
    activation: trans.__('activations'),
    dgrad: trans.__('activation gradients'),
    residual: trans.__('residual stream'),
    residual_dgrad: trans.__('residual gradients'),
    attention_entropy: trans.__('attention entropy'),
    attention_max: trans.__('largest attention'),
    router_entropy: trans.__('router entropy'),
    router_similarity: trans.__('router similarity'),
    stable_rank: trans.__('stable ranks'),
    kernel_norm: trans.__('kernel norms'),
    precision: trans.__('casts to fewer bits')
  };
  const byInterval = new Map<number, string[]>();
  for (const [stat, name] of Object.entries(names)) {
    const every = logged?.[stat as keyof LoggedStatistics];
    if (every !== undefined) {
      byInterval.set(every, [...(byInterval.get(every) ?? []), name]);
    }
  }
  return [...byInterval]
    .sort(([a], [b]) => a - b)
    .map(([every, stats]) =>
      every === 1
        ? trans.__('%1 every step', stats.join(', '))
        : trans.__('%1 every %2 steps', stats.join(', '), formatInteger(every))
    );
}

const WIDTH = 72;
const HEIGHT = 16;

/** SVG path of a sparkline; a non-finite value breaks the line. Exported for tests. */
function sparkPath({ steps, values }: ISpark): string {
  const finite = values.filter(Number.isFinite);
  const [first = 0, last = 0] = [steps[0], steps[steps.length - 1]];
  const low = finite.reduce((a, b) => Math.min(a, b), Infinity);
  const span = finite.reduce((a, b) => Math.max(a, b), -Infinity) - low || 1;
  let pen = 'M';
  return steps
    .flatMap((step, i) => {
      const value = values[i]!;
      if (!Number.isFinite(value)) {
        pen = 'M';
        return [];
      }
      const x = 1 + ((step - first) / (last - first || 1)) * (WIDTH - 2);
      const y = HEIGHT - 1.5 - ((value - low) / span) * (HEIGHT - 3);
      const point = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = 'L';
      return [point];
    })
    .join('');
}

function Sparkline({ spark, label }: { spark: ISpark; label: string }): React.ReactElement {
  return (
    <svg
      className="jp-MegalensSparkline"
      width={WIDTH}
      height={HEIGHT}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={label}
    >
      <path d={sparkPath(spark)} />
    </svg>
  );
}

/** Says where rows come from when no tracer of ours sends them. */
function OriginChips(props: { origin: Origin; trans: TranslationBundle }): React.ReactElement {
  const { origin, trans } = props;
  const { kind, name, steps, speed } = origin;
  return (
    <p className="jp-MegalensChips">
      {kind === 'replay' ? (
        <span
          className="jp-MegalensChip"
          title={trans.__('A recorded run, replayed as if it were live: %1', name ?? '')}
        >
          {speed === undefined || speed === 1 ? trans.__('replay') : trans.__('replay × %1', speed)}
        </span>
      ) : kind === 'trace' ? (
        <span
          className="jp-MegalensChip"
          title={trans.__('Files of another tool, read once and kept as a recording: %1', name ?? '')}
        >
          {trans.__('trace: %1', name ?? trans.__('unknown'))}
        </span>
      ) : (
        <span
          className="jp-MegalensChip"
          title={trans.__(
            'Another program’s hub, translated. Its settings may apply at its next start only.'
          )}
        >
          {trans.__(
            'foreign hub: %1',
            DIALECTS.find(each => each.id === name)?.name ?? name ?? trans.__('unknown')
          )}
        </span>
      )}
      {steps === 'inferred' && (
        <span
          className="jp-MegalensChip jp-mod-warn"
          title={trans.__(
            'This hub sends no step numbers. They are inferred from the order of its messages and may differ from the training’s own.'
          )}
        >
          {trans.__('steps inferred')}
        </span>
      )}
    </p>
  );
}

export function SummarySection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const notice = model.runNotice;
  if (model.runs.chosenId === null) {
    return null;
  }
  const { chosen } = model.runs;
  const title = chosen === null ? (open?.source.name ?? trans.__('Run')) : runLabel(chosen);
  return (
    <Section name="summary" title={title}>
      {notice !== null && <NoticeBox notice={notice} trans={trans} act={action => void model.act(action)} />}
      {open === null && notice === null && <p className="jp-MegalensHint">{trans.__('Opening the run…')}</p>}
      {open !== null && model.runs.chosen?.kind === 'statistics' && (
        <p className="jp-MegalensHint">
          {trans.__(
            'Statistics from files. The model and its training are not known; Statistics shows what there is.'
          )}
        </p>
      )}
      {open !== null && model.runs.chosen?.kind !== 'statistics' && (
        <>
          <TrainingControls model={model} open={open} />
          <Figures model={model} open={open} />
        </>
      )}
    </Section>
  );
}

function Figures({ model, open }: { model: PanelModel; open: IOpenRun }): React.ReactElement {
  const { trans } = model;
  const { source, summary } = open;
  const status = source.status;
  const logged = statisticsTexts(source.hello?.statistics, trans);
  return (
    <div className="jp-MegalensFigures">
      <p className="jp-MegalensFigures-model">{modelLine(open, trans)}</p>
      {source.hello?.origin !== undefined && <OriginChips origin={source.hello.origin} trans={trans} />}
      <RanksBox model={model} open={open} />
      {source.reading && (
        <p className="jp-MegalensHint" role="status">
          {trans.__('Reading steps %1 to %2…', ...source.reading.map(each => formatInteger(each)))}
        </p>
      )}
      {summary.loss !== null && (
        <Term
          className="jp-MegalensFigures-loss"
          name={trans.__('loss')}
          value={formatNumber(summary.loss.value, 4)}
          title={summary.loss.unit}
        >
          <button
            type="button"
            className="jp-MegalensSpark"
            title={trans.__('Open the scalars')}
            onClick={() => void model.openScalars()}
          >
            <Sparkline
              spark={summary.spark}
              label={trans.__(
                'Loss over steps, now %1. Opens the scalars.',
                formatNumber(summary.loss.value, 4)
              )}
            />
          </button>
        </Term>
      )}
      {summary.heldOut !== null && (
        <Term
          name={trans.__('held-out')}
          value={formatNumber(summary.heldOut.value, 4)}
          title={trans.__(
            '%1, measured at step %2',
            summary.heldOut.unit,
            formatInteger(summary.heldOut.step)
          )}
        />
      )}
      {summary.tokensPerSecond !== null && (
        <Term
          name={trans.__('speed')}
          value={trans.__('%1 tok/s', formatCount(summary.tokensPerSecond.value))}
        />
      )}
      {status !== null && <TrustLines status={status} model={model} open={open} />}
      {logged.length === 1 && (
        <Term className="jp-MegalensFigures-statistics" name={trans.__('statistics')} value={logged[0]!} />
      )}
      {logged.length > 1 && (
        <details className="jp-MegalensFigures-statistics">
          <summary>
            <Term
              name={trans.__('statistics')}
              value={trans._n('%1 kind', '%1 kinds', Object.keys(source.hello?.statistics ?? {}).length)}
            />
          </summary>
          {logged.map(each => (
            <p key={each}>{each}</p>
          ))}
        </details>
      )}
      {summary.fault !== null && (
        <p className="jp-MegalensFigures-warning" role="status">
          {trans.__('The scalars could not be read: %1', summary.fault)}
        </p>
      )}
      {open.instruments.map((part, at) => (
        <React.Fragment key={at}>{part.render?.()}</React.Fragment>
      ))}
      {(status?.warnings ?? []).map(warning => (
        <p key={warning} className="jp-MegalensFigures-warning" role="status">
          {warning}
        </p>
      ))}
    </div>
  );
}

function modelLine({ source }: IOpenRun, trans: TranslationBundle): string {
  const { model = null, layout = null } = source.hello ?? {};
  return [
    // 0 where the layers of a model were not found.
    ...(model?.layers ? [trans.__('%1 layers', model.layers)] : []),
    ...(model?.hidden ? [trans.__('%1 hidden', model.hidden)] : []),
    // Several processes have a line of their own.
    ...(layout === null || layout.world_size > 1 ? [] : [layoutText(layout)])
  ].join(' · ');
}

/** Troubled ranks that are named one by one. */
const NAMED = 10;
/** Ranks of a stage that are drawn one by one; a larger stage is counted. */
const DRAWN = 128;

/** The processes of a job in a line that opens to a row per pipeline stage; silent and lost ones first. */
export function RanksBox(props: { model: PanelModel; open: IOpenRun }): React.ReactElement | null {
  const { model, open } = props;
  const { trans } = model;
  const { source, ranks } = open;
  const layout = source.hello?.layout ?? null;
  if (layout === null || layout.world_size < 2) {
    return null;
  }
  const troubled = open.control.writable ? troubledRanks(source.status) : [];
  const Caret = ranks.open ? caretDownIcon : caretRightIcon;
  return (
    <div className="jp-MegalensRanks">
      <button
        type="button"
        className="jp-MegalensRanks-line"
        aria-expanded={ranks.open}
        aria-controls="jp-Megalens-ranks"
        onClick={() => ranks.toggle()}
      >
        <Caret.react tag="span" className="jp-MegalensSection-caret" />
        <span>
          {trans._n('%2 rank', '%2 ranks', layout.world_size, formatInteger(layout.world_size))}
          {' · '}
          {layoutText(layout)}
        </span>
        {troubled.length > 0 && (
          <span className="jp-MegalensRanks-trouble">{countText(troubled, trans)}</span>
        )}
      </button>
      {ranks.open && (
        <div id="jp-Megalens-ranks">
          {troubled.slice(0, NAMED).map(state => (
            <p key={state.rank} className="jp-MegalensFigures-warning">
              {rankName(state.rank, state, null)} {rankText(state, trans)}
            </p>
          ))}
          {troubled.length > NAMED && (
            <p className="jp-MegalensFigures-warning">
              {trans.__('and %1 more', formatInteger(troubled.length - NAMED))}
            </p>
          )}
          <ul className="jp-MegalensRanks-stages">
            {stagesOf(layout, source.status).map(stage => (
              <Stage key={stage.stage ?? 'unknown'} stage={stage} trans={trans} />
            ))}
          </ul>
        </div>
      )}
    </div>
  );
}

function Stage({ stage, trans }: { stage: IStage; trans: TranslationBundle }): React.ReactElement {
  const { ranks } = stage;
  return (
    <li className="jp-MegalensRanks-stage">
      <span className="jp-MegalensField-label">
        {stage.stage === null ? trans.__('Elsewhere') : trans.__('Stage %1', stage.stage)}
      </span>
      {ranks.length > DRAWN ? (
        <span>{stateCounts(ranks, trans)}</span>
      ) : (
        <ul className="jp-MegalensRanks-cells">
          {ranks.map(rank => (
            <Cell key={rank.rank} rank={rank} trans={trans} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Cell({ rank, trans }: { rank: IRank; trans: TranslationBundle }): React.ReactElement {
  const { state, coordinates: place } = rank;
  const text = `${rankName(rank.rank, state, place)} ${rankText(state, trans)}`;
  return (
    <li className={`jp-MegalensRanks-cell jp-mod-${state?.state ?? 'unknown'}`} title={text}>
      <span aria-hidden="true">{rank.rank}</span>
      <span className="jp-Megalens-unseen">{text}</span>
    </li>
  );
}

/** `2 silent, 1 lost`. */
function countText(troubled: readonly RankState[], trans: TranslationBundle): string {
  const lost = troubled.filter(({ state }) => state === 'lost').length;
  const silent = troubled.length - lost;
  return [
    ...(lost > 0 ? [trans.__('%1 lost', formatInteger(lost))] : []),
    ...(silent > 0 ? [trans.__('%1 silent', formatInteger(silent))] : [])
  ].join(', ');
}

/** A stage that is too large to draw: `1 020 training, 4 silent`. */
function stateCounts(ranks: readonly IRank[], trans: TranslationBundle): string {
  const words: Record<RankState['state'] | 'unknown', string> = {
    lost: trans.__('lost'),
    silent: trans.__('silent'),
    unknown: trans.__('not heard of'),
    paused: trans.__('paused'),
    idle: trans.__('idle'),
    training: trans.__('training'),
    finished: trans.__('finished')
  };
  return (Object.keys(words) as (keyof typeof words)[])
    .map(
      kind => [ranks.filter(({ state }) => (state?.state ?? 'unknown') === kind).length, words[kind]] as const
    )
    .filter(([count]) => count > 0)
    .map(([count, word]) => `${formatInteger(count)} ${word}`)
    .join(', ');
}
