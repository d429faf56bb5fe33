import * as React from 'react';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { INotice, NoticeAction } from './notice';
import { PanelButton } from './section';

/** A state in one sentence with one action. */
export function NoticeBox(props: {
  notice: INotice;
  trans: TranslationBundle;
  act: (action: NoticeAction) => void;
}): React.ReactElement {
  const { tone, sentence, detail, code, action } = props.notice;
  // Seconds and steps that count on are read by those who look, and said once.
  const words = sentence.replace(/[\d.\s]+/g, ' ');
  const spoken = React.useRef('');
  const counts = spoken.current === words;
  React.useEffect(() => {
    spoken.current = words;
  }, [words]);
  return (
    <div
      className={`jp-MegalensNotice jp-mod-${tone}`}
      role={tone === 'error' ? 'alert' : 'status'}
      aria-live={counts ? 'off' : undefined}
    >
      <p>
        {tone === 'busy' && <span className="jp-MegalensNotice-busy" aria-hidden="true" />}
        {sentence}
      </p>
      {code !== undefined && (
        <pre className="jp-MegalensNotice-code" tabIndex={0}>
          {code}
        </pre>
      )}
      {detail !== undefined && detail !== '' && (
        <details>
          <summary>{props.trans.__('What the server said')}</summary>
          <p>{detail}</p>
        </details>
      )}
      {action !== null && <PanelButton act={() => props.act(action.id)}>{action.label}</PanelButton>}
    </div>
  );
}
