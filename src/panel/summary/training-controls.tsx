import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { Control } from '../../protocol/messages.generated';
import { Confirm } from '../shell/dialogs';
import type { ControlModel } from './control-model';
import type { IOpenRun } from '../shell/open-run';
import type { PanelModel } from '../shell/panel-model';
import { askedText } from '../trace/apply-bar';
import { NumberInput } from '../trace/schema-form';
import { PanelButton } from '../shell/section';

/** Pause, resume, step, or train only while watched: what the training script allows of these. */
export function TrainingControls(props: { model: PanelModel; open: IOpenRun }): React.ReactElement | null {
  const { trans } = props.model;
  const { control, source } = props.open;
  if (!control.writable || !source.hello?.model) {
    return null;
  }
  // Nobody asks a script of a program that is not ours, or of a recording.
  const lacking = source.hello.origin === undefined ? missing(control.controls) : [];
  const asked = control.asked('mode');
  const offered = control.controls.includes('pause') || control.controls.includes('watched');
  return (
    <div className="jp-MegalensControls">
      {control.controls.includes('pause') && <Pause control={control} trans={trans} />}
      {control.controls.includes('watched') && <Watched control={control} trans={trans} />}
      {offered && asked.kind !== 'idle' && (
        <p
          className={`jp-MegalensControls-state jp-mod-${asked.kind}`}
          role={asked.kind === 'refused' ? 'alert' : 'status'}
        >
          {askedText(asked, trans)}
        </p>
      )}
      {lacking.length > 0 && <NotAllowed controls={lacking} trans={trans} />}
    </div>
  );
}

function Pause({ control, trans }: { control: ControlModel; trans: TranslationBundle }): React.ReactElement {
  const [steps, setSteps] = React.useState(1);
  const { paused } = control;
  return (
    <Confirm
      label={paused ? trans.__('Resume') : trans.__('Pause')}
      className={paused ? 'jp-mod-accept' : ''}
      title={
        paused ? trans.__('Let the training go on') : trans.__('Make every process wait before its next step')
      }
      plain={paused}
      question={trans.__(
        'Pause the training for everybody? It waits, also when this page is closed, until somebody resumes it or its hub ends.'
      )}
      yes={trans.__('Pause the training')}
      no={trans.__('Keep training')}
      act={() => void control.setMode({ paused: !paused })}
      aside={
        paused && (
          <>
            <PanelButton
              title={trans._n('Take %1 step, then wait again', 'Take %1 steps, then wait again', steps)}
              act={() => void control.setMode({ steps })}
            >
              {trans.__('Step')}
            </PanelButton>
            <NumberInput
              aria-label={trans.__('Steps to take')}
              value={steps}
              minimum={1}
              maximum={1_000_000}
              change={value => value !== null && setSteps(value)}
            />
          </>
        )
      }
    />
  );
}

function Watched({
  control,
  trans
}: {
  control: ControlModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const on = control.whileWatched;
  const label = trans.__('Train only while somebody watches');
  return (
    <Confirm
      label={
        <>
          <span className="jp-MegalensControls-box" aria-hidden="true">
            {on ? '☑' : '☐'}
          </span>{' '}
          {label}
        </>
      }
      className={on ? 'jp-mod-switch jp-mod-on' : 'jp-mod-switch'}
      checked={on}
      plain={on}
      question={trans.__(
        'Let the training wait whenever no viewer is attached? It stops as soon as the last page or notebook that watches it is closed.'
      )}
      yes={trans.__('Train only while watched')}
      no={trans.__('Keep training')}
      act={() => void control.setMode({ while_watched: !on })}
    />
  );
}

/** One quiet line on what the training's script could allow. */
function NotAllowed(props: { controls: readonly Hinted[]; trans: TranslationBundle }): React.ReactElement {
  const { controls, trans } = props;
  const words: Record<Hinted, string> = {
    pause: trans.__('pausing'),
    watched: trans.__('training only while watched'),
    perturb: trans.__('perturbing')
  };
  const allow = controls.map(control => `"${control}"`).join(', ');
  return (
    <details className="jp-MegalensControls-hint">
      <summary>
        {controls.length === HINTED.length
          ? trans.__('View-only: the script allows no control')
          : trans.__('Off in this run: %1', controls.map(control => words[control]).join(', '))}
      </summary>
      {trans.__('Its training script allows more with')}{' '}
      <code>{`megalens.trace(..., allow=[${allow}])`}</code>
    </details>
  );
}

/** What the script could allow by its name alone; writing text needs a tokenizer too. */
const HINTED = ['pause', 'watched', 'perturb'] as const;
type Hinted = (typeof HINTED)[number];

function missing(controls: readonly Control[]): Hinted[] {
  return HINTED.filter(control => !controls.includes(control));
}
