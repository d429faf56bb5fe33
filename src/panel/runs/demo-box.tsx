import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { DemoModel } from './demo-model';
import { PanelButton } from '../shell/panel-button';

/** What the button does, for a terminal. */
const COMMAND = 'python -m megalens.demo';

/** Offers the demo where there is no run yet, and says how it stands once it was started. */
export function DemoBox(props: {
  demo: DemoModel;
  /** Whether there is no run yet. */
  empty: boolean;
  trans: TranslationBundle;
}): React.ReactElement | null {
  const { demo, empty, trans } = props;
  const stop = (
    <PanelButton className="jp-MegalensLink" act={() => void demo.stop()}>
      {trans.__('Stop the demo')}
    </PanelButton>
  );
  const start = (
    <PanelButton act={() => void demo.start()}>
      {demo.state.kind === 'failed' ? trans.__('Start the demo again') : trans.__('Start the demo')}
    </PanelButton>
  );
  switch (demo.state.kind) {
    case 'off':
      return empty ? (
        <p className="jp-MegalensHint">
          {trans.__('Nothing to train? Start the demo in a terminal:')} <code>{COMMAND}</code>
        </p>
      ) : null;
    case 'idle':
      return empty ? (
        <div className="jp-MegalensDemo">
          <p>
            {trans.__('Nothing to train? The demo trains a small GPT on this server for about ten minutes:')}{' '}
            <code>{COMMAND}</code>
          </p>
          {start}
        </div>
      ) : null;
    case 'starting':
      return (
        <div className="jp-MegalensNotice jp-mod-busy jp-MegalensDemo" role="status">
          <p>
            <span className="jp-MegalensNotice-busy" aria-hidden="true" />
            {trans.__('The demo is starting. Its run appears here by itself.')}
          </p>
          {stop}
        </div>
      );
    case 'running':
      return (
        <p className="jp-MegalensDemo" role="status">
          {trans.__('The demo is training.')} {stop}
        </p>
      );
    case 'failed':
      return (
        <div className="jp-MegalensNotice jp-mod-error jp-MegalensDemo" role="alert">
          <p>{trans.__('The demo ended with an error. Its last line was:')}</p>
          <pre className="jp-MegalensNotice-code" tabIndex={0}>
            {demo.state.message}
          </pre>
          {start}
        </div>
      );
  }
}
