import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatInteger } from '../../charts/format';
import type { RankState } from '../../protocol/messages.generated';
import type { IOpenRun } from '../shell/open-run';
import type { PanelModel } from '../shell/panel-model';
import { layoutText, rankName, rankText, stagesOf, troubledRanks, type IRank, type IStage } from './ranks';

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
